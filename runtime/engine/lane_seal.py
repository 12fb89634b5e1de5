"""The seal of a batch: its leases still hold, and it is recorded, before anything leaves."""

import uuid

import structlog

from runtime.engine.lane_book import LaneBook, leases_of
from runtime.engine.lane_fence import Fence
from runtime.engine.lane_flight import Flight
from runtime.engine.lane_parts import LaneParts
from runtime.model.lease import BatchRecord

log = structlog.get_logger()


class Seal:
    """Seals batches of this session. `is_stopped`: the session is lost, nothing further is sent."""

    def __init__(self, parts: LaneParts, book: LaneBook, fence: Fence) -> None:
        self._parts = parts
        self._book = book
        self._fence = fence
        self.is_stopped = False

    async def seal(self, flight: Flight) -> bool:
        """Record the batch if its leases hold; members whose lease is lost are left to others."""
        if flight.spec.is_fenced and not flight.is_verbatim and not self.is_stopped:
            await self._mark(flight)
        while flight.items and not self.is_stopped:
            record = flight.record or flight.spec.record(
                uuid.uuid4().hex, self._parts.session_id, flight.lane, flight.items
            )
            flight.record = self._book.batches[record.batch_id] = record
            leased = await self._holds(record)
            if all(leased):
                return True
            holds = [own and shared is not False for own, shared in record.per_member(leased)]
            if flight.is_verbatim:
                await self.abandon(flight)
                return False
            self._book.batches.pop(record.batch_id, None)
            lost = [item for item, held in zip(flight.items, holds, strict=True) if not held]
            log.warning("leases lost before sending", action="lane.seal", lane=flight.lane, calls=len(lost))
            self._book.leave(lost)
            await self._book.unmark(lost)
            flight.items = [item for item, held in zip(flight.items, holds, strict=True) if held]
            flight.record = None
        if flight.items:
            await self._book.give_back(flight.items)
        return False

    async def _mark(self, flight: Flight) -> None:
        """Members that their ticket did not see coming; a moment that passed meanwhile is asked for anew."""
        clock = self._parts.clock
        started_ms = clock.now_ms()
        gone = await self._fence.mark(flight.items)
        flight.items = [item for item in flight.items if item not in gone]
        if flight.items and clock.now_ms() - started_ms >= self._parts.limits.lane_retry_ms:
            flight.slot.free()
            await flight.slot.take(len(flight.items))

    async def still_holds(self, flight: Flight) -> bool:
        """Whether a sealed batch may be sent again; if not it is abandoned."""
        if flight.record is not None and not self.is_stopped and all(await self._holds(flight.record)):
            return True
        await self.abandon(flight)
        return False

    async def abandon(self, flight: Flight) -> None:
        """Some leases went to others: this batch can't be sent as it is; what we still hold is free for its askers."""
        log.warning("batch lost", action="lane.abandon", lane=flight.lane, calls=len(flight.items))
        leases = leases_of(flight.items)
        self._book.leave(flight.items)
        if not self.is_stopped:
            await self._book.release(leases, flight.batch_id)

    async def _holds(self, record: BatchRecord) -> list[bool]:
        parts = self._parts
        holds = await parts.until_reachable(
            "lane.seal", lambda: parts.leases.seal(record), parts.limits.lane_wait_ms
        )
        if all(holds):
            return holds
        # Redis may have lost its data: put back what we hold, then look again.
        await parts.until_reachable("lane.renew", self._book.renew, parts.limits.lane_wait_ms)
        return await parts.until_reachable(
            "lane.seal", lambda: parts.leases.seal(record), parts.limits.lane_wait_ms
        )
