"""Takeover: a dead session's batch is sent again verbatim, so that the API's own memory of it holds."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import structlog

from runtime.engine.lane_batch import BatchFlow
from runtime.engine.lane_book import Item, LaneBook, Waiter, outgoing
from runtime.engine.lane_flight import Flight, Slot, Stage
from runtime.engine.lane_parts import LaneParts
from runtime.engine.lane_spec import BatchSpec, batch_spec, call_of
from runtime.errors import BadInputError, PlayDefinitionError, ServiceUnreachableError, ToolCallError
from runtime.model.lease import BatchRecord
from runtime.model.outcome import all_unknown
from runtime.model.receipt import Receipt, ReceiptState
from runtime.model.tool import ToolMetadata
from runtime.policy.limits import Limits

log = structlog.get_logger()


class Takeover:
    """Adopts batches of dead sessions, each once at a time."""

    def __init__(
        self,
        parts: LaneParts,
        book: LaneBook,
        flow: BatchFlow,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._parts = parts
        self._book = book
        self._flow = flow
        self._spawn = spawn
        self._waiting: dict[str, list[Item]] = {}
        self._put_off: set[str] = set()  # perhaps ours already, so no sweep of orphans finds them

    def start(self, batch_id: str, waiting: Sequence[Item] = ()) -> None:
        """Adopt in the background; `waiting` items belong to that batch."""
        known = self._waiting.get(batch_id)
        if known is not None:
            known.extend(waiting)
            return
        if batch_id in self._book.batches:
            self._book.leave(waiting)
            return
        self._waiting[batch_id] = list(waiting)
        self._spawn(self._take(batch_id))

    async def sweep(self) -> int:
        """Start on recorded batches whose session is dead; returns how many were found."""
        put_off, self._put_off = self._put_off, set()
        found = await self._parts.leases.orphans(self._parts.limits.takeover_batches)
        for batch_id in [*put_off, *found]:
            self.start(batch_id)
        return len(found)

    async def _take(self, batch_id: str) -> None:
        flight: Flight | None = None
        try:
            record = await self._parts.leases.adopt(self._parts.session_id, batch_id)
            if record is not None:
                flight = await self._adopted(record)
        except ServiceUnreachableError as error:
            self._put_off.add(batch_id)
            log.warning("takeover put off", action="lane.takeover", batch_id=batch_id, error=str(error))
        except BadInputError as error:
            log.error("batch record unreadable", action="lane.takeover", batch_id=batch_id, error=str(error))
        finally:
            waiting = self._waiting.pop(batch_id, [])
            taken = {id(item) for item in flight.items} if flight else set[int]()
            self._book.leave([item for item in waiting if id(item) not in taken])
        if flight is not None:
            await self._finish(flight)

    async def _adopted(self, record: BatchRecord) -> Flight | None:
        """The batch as a flight of ours; None if nothing of it is left to do."""
        log.warning(
            "batch adopted", action="lane.takeover", batch_id=record.batch_id, calls=len(record.members)
        )
        self._book.batches[record.batch_id] = record
        items = [
            self._item(member, fence) for member, fence in zip(record.members, record.fences, strict=True)
        ]
        try:
            stored = await self._read([item.call.key for item in items])
            if all(_is_committed(member, stored.get(member["key"])) for member in record.members):
                await self._only_release(items, stored, record)
                return None
            return await self._flight(items, record)
        except ServiceUnreachableError:
            self._book.leave(items)
            self._book.batches.pop(record.batch_id, None)
            raise

    def _item(self, member: dict[str, Any], fence: int) -> Item:
        call = call_of(member)
        item = self._book.items.get(call.key)
        if item is None:
            item = self._book.items[call.key] = Item(call=call)
        item.call, item.fence, item.is_queued = call, fence, True
        known = {waiter.inbox for waiter in item.waiters}
        recorded = [
            Waiter(inbox, run_id, None) for inbox, run_id in member.get("inboxes", ()) if inbox not in known
        ]
        item.waiters.extend(recorded)
        return item

    async def _read(self, keys: list[str]) -> dict[str, Receipt]:
        parts = self._parts
        return await parts.until_reachable(
            "lane.read", lambda: parts.receipts.read(keys), parts.limits.lane_wait_ms
        )

    async def _only_release(self, items: list[Item], stored: dict[str, Receipt], record: BatchRecord) -> None:
        out = outgoing()
        leases = [item.lease for item in items if item.fence]
        for item in items:
            if not self._book.answer_by_receipt(item, stored[item.call.key], out):
                self._book.leave([item])
        await self._book.release(leases, record.batch_id)
        await self._book.push(out)

    async def _flight(self, items: list[Item], record: BatchRecord) -> Flight:
        spec, why = await self._spec(record)
        first = items[0].call
        slot = Slot(self._parts, record.lane, first.org_id)
        if spec is not None and all(record.fences):
            return Flight(
                slot=slot, lane=record.lane, spec=spec, items=items, record=record, is_verbatim=True
            )
        others = [item for item in items if not item.fence]
        self._book.leave(others)
        mine = [item for item in items if item.fence]
        flight = Flight(
            slot=slot,
            lane=record.lane,
            spec=spec or _no_spec(record, self._parts.limits),
            items=mine,
            record=record,
        )
        reason = (
            why or "its worker died and a lease of its batch was lost, so it can't be sent again verbatim"
        )
        flight.outcomes = all_unknown(len(mine), reason).outcomes
        flight.stage = Stage.ANSWERED
        return flight

    async def _spec(self, record: BatchRecord) -> tuple[BatchSpec | None, str]:
        parts = self._parts
        tool, org_id = record.members[0]["tool"], record.members[0]["org_id"]
        try:
            metadata = await parts.until_reachable(
                "lane.metadata", lambda: parts.catalog.metadata(tool, org_id), parts.limits.lane_wait_ms
            )
            spec = batch_spec(metadata, parts.limits)
        except (ToolCallError, PlayDefinitionError) as error:
            return None, f"its worker died and {tool} can't be looked up now: {error}"
        if spec.explains(record):
            return spec, ""
        return None, (
            f"its worker died and {record.operation} is now batched by {spec.strategy.name} {spec.strategy.revision}, "
            f"not {record.strategy} {record.revision}"
        )

    async def _finish(self, flight: Flight) -> None:
        try:
            if flight.stage is not Stage.ANSWERED:
                await flight.slot.take(len(flight.items))
            await self._flow.fly(flight)
        finally:
            flight.slot.free()


def _is_committed(member: dict[str, Any], receipt: Receipt | None) -> bool:
    """Whether the dead session's own commit, or a completed one, is stored."""
    if receipt is None:
        return False
    return receipt.state is ReceiptState.COMPLETED or receipt.fence >= member["fence"]


def _no_spec(record: BatchRecord, limits: Limits) -> BatchSpec:
    """Stands in where the strategy is gone: its calls end unknown and nothing is sent."""
    return batch_spec(ToolMetadata(tool=record.members[0]["tool"], provider="unknown"), limits)
