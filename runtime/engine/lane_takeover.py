"""Takeover: a dead session's batch is sent again verbatim, so that the API's own memory of it holds."""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import structlog

from runtime.engine.lane_batch import BatchFlow
from runtime.engine.lane_book import Item, LaneBook, Waiter, leases_of, outgoing
from runtime.engine.lane_fence import Fence
from runtime.engine.lane_flight import Flight, Slot, Stage, rate_scope
from runtime.engine.lane_parts import LaneParts
from runtime.engine.lane_spec import BatchSpec, batch_spec, call_of
from runtime.errors import BadInputError, PlayDefinitionError, ServiceUnreachableError, ToolCallError
from runtime.model.call import Accepts
from runtime.model.lease import BatchRecord, OrphanBatch
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
        fence: Fence,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._parts = parts
        self._book = book
        self._flow = flow
        self._fence = fence
        self._spawn = spawn
        self._waiting: dict[str, list[Item]] = {}
        self._put_off: set[str] = set()  # perhaps ours already, so no sweep of orphans finds them
        self._orphans: dict[str, OrphanBatch] = {}

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
        """Start on recorded batches whose session is dead; returns how many were found.

        A batch whose runs have all ended is left to the next asker, or until its time is up, unless all of it is
        committed: then only its leases are left to free.
        """
        put_off, self._put_off = self._put_off, set()
        found = await self._wanted(await self._parts.leases.orphans(self._parts.limits.orphan_scan))
        for batch_id in [*put_off, *found]:
            self.start(batch_id)
        return len(found)

    async def _wanted(self, orphans: Sequence[str]) -> list[str]:
        """The oldest of the orphans that a live run waits for, or that nothing is left to do for."""
        parts = self._parts
        bound = parts.limits.takeover_batches
        if parts.runs is None or not orphans:
            return list(orphans[:bound])
        fresh = [batch_id for batch_id in orphans if batch_id not in self._orphans]
        known = {batch_id: self._orphans[batch_id] for batch_id in orphans if batch_id in self._orphans}
        for start in range(0, len(fresh), bound):
            known |= await parts.leases.orphans_of(fresh[start : start + bound])
        self._orphans = known
        runs = sorted(frozenset[str]().union(*(orphan.runs for orphan in known.values())))
        ended = await parts.runs.ended(runs)
        asked_for = [batch_id for batch_id in orphans if batch_id in known and known[batch_id].runs - ended]
        left = [batch_id for batch_id in orphans if batch_id in known and batch_id not in asked_for]
        return [*asked_for, *await self._done(left[:bound])][:bound]

    async def _done(self, batch_ids: Sequence[str]) -> list[str]:
        """Those of which every member is committed."""
        members = {batch_id: self._orphans[batch_id].members for batch_id in batch_ids}
        keys = [member["key"] for one in members.values() for member in one]
        stored = await self._parts.receipts.read(keys) if keys else {}
        return [
            batch_id
            for batch_id, one in members.items()
            if one and all(_is_committed(member, stored.get(member["key"])) for member in one)
        ]

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
        # A member without a fence went to another session: it stays in the payload, its outcome is the other's.
        items = [
            self._item(member, fence, shared_fence)
            for member, (fence, shared_fence) in zip(
                record.members, record.per_member(record.fences), strict=True
            )
            if fence
        ]
        try:
            stored = await self._read([item.call.key for item in items])
            mine = {item.call.key for item in items}
            members = [member for member in record.members if member["key"] in mine]
            if all(_is_committed(member, stored.get(member["key"])) for member in members):
                await self._only_release(items, stored, record)
                return None
            return await self._flight(items, record, stored)
        except ServiceUnreachableError:
            self._book.leave(items)
            self._book.batches.pop(record.batch_id, None)
            raise

    def _item(self, member: dict[str, Any], fence: int, shared_fence: int | None) -> Item:
        call = call_of(member)
        item = self._book.items.get(call.key)
        if item is None:
            item = self._book.items[call.key] = Item(call=call)
        item.call, item.fence, item.is_queued = call, fence, True
        item.shared_fence, item.refreshes = shared_fence or 0, bool(member.get("refreshes"))
        item.mark_key = member.get("mark_key")
        self._book.reserve(item)
        known = {waiter.inbox for waiter in item.waiters}
        recorded = [
            Waiter(inbox, run_id, None, Accepts(not_before_ms=since, failed_not_before_ms=failed_since))
            for inbox, run_id, since, failed_since in member.get("inboxes", ())
            if inbox not in known
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
        leases = leases_of(items)
        for item in items:
            if not self._book.answer_by_receipt(item, stored[item.call.key], out):
                self._book.leave([item])
        await self._book.release(leases, record.batch_id)
        await self._book.push(out)

    async def _flight(self, items: list[Item], record: BatchRecord, stored: dict[str, Receipt]) -> Flight:
        spec, why = await self._spec(record)
        known = spec or _no_spec(record, stored, self._parts.limits)
        slot = Slot(
            self._parts, rate_scope(record.lane, items[0].call.org_id, known, items[0].call.integration_mode)
        )
        flight = Flight(
            slot=slot,
            lane=record.lane,
            spec=known,
            items=items,
            record=record,
            is_verbatim=True,
        )
        if spec is not None and spec.is_fenced and not await self._is_attested():
            why = "its worker died and the API attests no fence, so it isn't sent again"
        if why:
            flight.outcomes = all_unknown(len(items), why).outcomes
            flight.stage = Stage.ANSWERED
        return flight

    async def _is_attested(self) -> bool:
        return await self._fence.is_attested(self._parts.limits.lane_wait_ms)

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
    if receipt is None or receipt.state is ReceiptState.DISPATCHED:
        return False
    is_wanted = receipt.state is ReceiptState.COMPLETED and not member.get("refreshes")
    return is_wanted or receipt.fence >= member["fence"]


def _no_spec(record: BatchRecord, stored: dict[str, Receipt], limits: Limits) -> BatchSpec:
    """Stands in where the strategy is gone: its calls end unknown and nothing is sent."""
    was_marked = any(receipt.state is ReceiptState.DISPATCHED for receipt in stored.values())
    tool = record.members[0]["tool"]
    return batch_spec(
        ToolMetadata(tool=tool, provider="unknown", requires_execution_fence=was_marked), limits
    )
