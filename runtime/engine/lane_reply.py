"""A batch's end: commit its outcomes, answer all who wait, free its leases; or keep what can't be stored yet."""

from dataclasses import replace

import structlog

from runtime.engine.lane_book import LaneBook, answer_of, leases_of, outgoing
from runtime.engine.lane_charges import charges_of
from runtime.engine.lane_commit import Committer
from runtime.engine.lane_events import LaneEvents
from runtime.engine.lane_fence import Fence
from runtime.engine.lane_flight import Flight, Stage
from runtime.engine.lane_outcomes import receipts_of, usage_of
from runtime.engine.lane_parts import LaneParts
from runtime.errors import PersistenceLostError, ServiceUnreachableError
from runtime.model.call import Answer, AnswerState
from runtime.model.receipt import Receipt, ReceiptState

log = structlog.get_logger()


class Reply:
    """Settles batches whose outcomes are known."""

    def __init__(self, parts: LaneParts, book: LaneBook, committer: Committer, fence: Fence) -> None:
        self._parts = parts
        self._fence = fence
        self._book = book
        self._committer = committer
        self.events = LaneEvents(parts.events, parts.limits)
        self.uncommitted: list[tuple[Flight, list[Receipt]]] = []
        self.batches = 0
        self.calls = 0
        self.capacity = 0

    async def settle(self, flight: Flight) -> None:
        receipts, shared = self._receipts(flight)
        stored = await self._committer.commit(
            [*receipts, *shared], usage_of(flight, flight.outcomes), charges_of(flight)
        )
        flight.stage = Stage.COMMITTED
        await self._parts.fault("lane.after_commit")
        now_ms = self._parts.clock.now_ms()
        self.events.settled(flight, receipts, now_ms - (now_ms if flight.sent_ms is None else flight.sent_ms))
        flight.slot.free()
        self._count(flight)
        if flight.spec.is_fenced:
            await self._fence.settled(
                [
                    item
                    for item, receipt in zip(flight.items, receipts, strict=True)
                    if item.mark_key and receipt.state is not ReceiptState.UNKNOWN
                ]
            )
        out = outgoing()
        leases = leases_of(flight.items)
        for item, receipt in zip(flight.items, receipts, strict=True):
            served = _served(receipt, stored[receipt.key], flight.lane)
            self._book.answer(item, answer_of(served, cached=False), out)
        await self._book.release(leases, flight.record.batch_id if flight.record else None)
        await self._book.push(out)

    def _receipts(self, flight: Flight) -> tuple[list[Receipt], list[Receipt]]:
        """One per item, aligned; and what forced calls refresh: a completed result alone replaces a shared one."""
        receipts = [
            replace(receipt, refreshes=True) if item.refreshes else receipt
            for item, receipt in zip(flight.items, receipts_of(flight, self._parts.limits), strict=True)
        ]
        shared = [
            replace(receipt, key=item.call.shared_key, fence=item.shared_fence, refreshes=True)
            for item, receipt in zip(flight.items, receipts, strict=True)
            if item.call.shared_key and item.shared_fence and receipt.state is ReceiptState.COMPLETED
        ]
        return receipts, shared

    def _count(self, flight: Flight) -> None:
        self.batches += 1
        self.calls += len(flight.items)
        self.capacity += flight.spec.strategy.max_batch_size

    async def latch(self, flight: Flight, error: PersistenceLostError) -> None:
        """Postgres stayed away: the members' runs stop; leases, record and outcomes are kept for a sweep."""
        log.error(
            "persistence latch",
            action="lane.latch",
            lane=flight.lane,
            calls=len(flight.items),
            error=str(error),
        )
        payload = {**error.to_payload(), "retryable": False}
        self._book.stop_runs({w.run_id for item in flight.items for w in item.waiters}, payload)
        receipts, shared = self._receipts(flight)
        self.uncommitted.append((flight, [*receipts, *shared]))
        out = outgoing()
        for item in flight.items:
            self._book.kept.update((lease.key, lease) for lease in item.leases)
            answer = Answer(
                key=item.call.key, state=AnswerState.FAILED, error=payload, run_id=item.call.run_id
            )
            self._book.answer(item, answer, out)
        await self._book.push(out)

    async def store_again(self) -> None:
        """Store outcomes that a latch kept; called by sweeps."""
        for kept in list(self.uncommitted):
            flight, receipts = kept
            try:
                await self._committer.store(
                    receipts, usage_of(flight, flight.outcomes), charges_of(flight), is_repeat=True
                )
            except ServiceUnreachableError as error:
                log.warning(
                    "outcomes still not stored", action="lane.latch", calls=len(receipts), error=str(error)
                )
                continue
            if kept not in self.uncommitted:
                continue
            self.uncommitted.remove(kept)
            keys = [key for item in flight.items for key in (item.call.key, item.call.shared_key)]
            leases = [self._book.kept.pop(key) for key in keys if key in self._book.kept]
            await self._book.release(leases, flight.record.batch_id if flight.record else None)


def _served(ours: Receipt, stored: Receipt, lane: str) -> Receipt:
    """A completed receipt is served whoever stored it, but for one that was to be refreshed; else the live outcome."""
    if ours.refreshes and stored.fence < ours.fence:
        return ours
    if stored.fence != ours.fence:
        log.warning("late result", action="lane.late", lane=lane, key=ours.key, stored=stored.state.value)
    return stored if stored.state is ReceiptState.COMPLETED else ours
