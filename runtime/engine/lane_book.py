"""What a lane process holds: the items it works for, who waits for each, and the batches it recorded."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import structlog

from runtime.engine.lane_items import (
    Accepted,
    Item,
    Outgoing,
    Waiter,
    freed_charges,
    leases_of,
    mark_of,
    outgoing,
)
from runtime.engine.lane_parts import LaneParts
from runtime.errors import ServiceUnreachableError
from runtime.model.budget import Charge
from runtime.model.call import Answer, AnswerState, Call
from runtime.model.lease import BatchRecord, Lease
from runtime.model.receipt import Receipt
from runtime.policy.answering import answer_of

log = structlog.get_logger()


class LaneBook:
    """Items by key. Answering an item takes it out; an item taken out is in nobody's way."""

    def __init__(self, parts: LaneParts) -> None:
        self._parts = parts
        self.items: dict[str, Item] = {}
        self.forcing: dict[str, Item] = {}  # shared key -> the forced item that has it, or is about to
        self.batches: dict[str, BatchRecord] = {}
        self.kept: dict[str, Lease] = {}  # of outcomes that couldn't be committed yet
        self.stopped_runs: dict[str, dict[str, Any]] = {}  # run -> error of every further call
        self.prevented = 0
        self._unreleased: list[Lease] = []
        self._unfreed: list[Charge] = []

    def join(self, calls: Iterable[Call], post: Accepted) -> list[Item]:
        """Let every call wait for its item; returns the items that are new."""
        fresh: list[Item] = []
        for call in calls:
            item = self.items.get(call.key)
            if item is None:
                item = self.items[call.key] = Item(call=call)
                fresh.append(item)
            item.waiters.append(Waiter(call.inbox, call.run_id, post, call.accepts))
        return fresh

    def held(self) -> tuple[list[Lease], list[BatchRecord]]:
        """Everything to be put back if Redis loses it."""
        return [*leases_of(self.items.values()), *self.kept.values()], list(self.batches.values())

    async def renew(self) -> None:
        """Heartbeat; what Redis lost is put back, and what ended here meanwhile is freed again."""
        parts = self._parts
        leases, batches = self.held()
        await parts.leases.renew(parts.session_id, leases, batches)
        held, recorded = self.held()
        # Released before it was put back, it would be held until this process ends.
        await self.release(sorted(set(leases) - set(held), key=lambda lease: lease.key))
        known = {record.batch_id for record in recorded}
        for batch_id in [record.batch_id for record in batches if record.batch_id not in known]:
            await self.release([], batch_id)

    def answer(self, item: Item, answer: Answer, out: Outgoing) -> None:
        """Answer all who wait; the item leaves."""
        self._drop(item)
        self._tell(item, answer, out)

    def _tell(self, item: Item, answer: Answer, out: Outgoing) -> None:
        told: set[str] = set()
        for waiter in item.waiters:
            if waiter.inbox not in told:
                told.add(waiter.inbox)
                out[waiter.inbox].append(answer)
            if waiter.post is not None:
                waiter.post.settle()
        item.waiters.clear()

    def answer_by_receipt(self, item: Item, receipt: Receipt, out: Outgoing) -> bool:
        """Answer those whom a stored receipt serves; True if nobody is left waiting."""
        left = [waiter for waiter in item.waiters if not waiter.takes(receipt)]
        served = Item(call=item.call, waiters=[waiter for waiter in item.waiters if waiter.takes(receipt)])
        if served.waiters:
            self.answer(served, answer_of(receipt, cached=True, key=item.call.key), out)
        item.waiters = left
        if not left:
            self._drop(item)
        return not left

    def leave(self, items: Iterable[Item]) -> None:
        """Others own these: no answer, their callers poll."""
        for item in items:
            self._drop(item)
            for waiter in item.waiters:
                if waiter.post is not None:
                    waiter.post.settle()
            item.waiters.clear()
            self._unfreed += freed_charges([item])

    async def give_back(self, items: Sequence[Item]) -> None:
        """Release the leases of calls that were not sent, and ask their callers to post again."""
        await self._unsent(items, AnswerState.RETURNED, None)

    async def put_off(self, items: Sequence[Item], until_ms: float) -> None:
        """Release the leases of calls whose turn is far away, and ask their callers to come back then."""
        await self._unsent(items, AnswerState.TRY_LATER, until_ms)

    async def tell_later(self, items: Sequence[Item], until_ms: float) -> None:
        """Send away who waits, until then; the items stay, and their outcomes are found in receipts."""
        out = outgoing()
        for item in items:
            self._tell(item, Answer(key=item.call.key, state=AnswerState.TRY_LATER, until_ms=until_ms), out)
        await self.push(out)

    async def _unsent(self, items: Sequence[Item], state: AnswerState, until_ms: float | None) -> None:
        out = outgoing()
        leases = leases_of(items)
        for item in items:
            self.answer(item, Answer(key=item.call.key, state=state, until_ms=until_ms), out)
        await self._end_unsent(items, leases, out)

    async def answer_unsent(self, answers: Sequence[tuple[Item, Answer]]) -> None:
        """Answer calls that are not made, each in its own way, and free their leases."""
        out = outgoing()
        items = [item for item, _ in answers]
        leases = leases_of(items)
        for item, answer in answers:
            self.answer(item, answer, out)
        await self._end_unsent(items, leases, out)

    async def _end_unsent(self, items: Sequence[Item], leases: Sequence[Lease], out: Outgoing) -> None:
        await self.unmark(items)
        await self.free(items)
        await self.release(leases)
        await self.push(out)

    async def fail(self, items: Sequence[Item], error: dict[str, Any], run_id: str | None = None) -> None:
        """Refuse calls before they are sent: nothing is stored, leases are freed. `run_id`: for that run only."""
        out = outgoing()
        leases = leases_of(items)
        for item in items:
            payload = {"tool": item.call.tool, **error}
            answer = Answer(key=item.call.key, state=AnswerState.FAILED, error=payload, run_id=run_id)
            self.answer(item, answer, out)
        await self._end_unsent(items, leases, out)

    async def free(self, items: Iterable[Item]) -> None:
        """Give back the budget of calls that certainly cost nothing; what can't be given now is by a sweep."""
        self._unfreed += freed_charges(items)
        await self.free_again()

    async def free_again(self) -> None:
        """Give back what an unreachable Postgres kept, and what calls left to others held."""
        charges, self._unfreed = self._unfreed, []
        if not charges or self._parts.budgets is None:
            return
        try:
            await self._parts.budgets.free(charges)
        except ServiceUnreachableError as error:
            log.warning("budget not freed", action="lane.free", calls=len(charges), error=str(error))
            self._unfreed = [*charges, *self._unfreed][-self._parts.limits.unfreed_charges :]

    async def unmark(self, items: Iterable[Item]) -> None:
        """Take back marks of calls that were certainly not sent. Best effort: a mark that stays is only cautious."""
        marked = [item for item in items if item.is_marked]
        if not marked:
            return
        for item in marked:
            item.is_marked = False
        try:
            await self._parts.receipts.unmark(self._parts.session_id, [mark_of(item) for item in marked])
        except ServiceUnreachableError as error:
            log.warning("marks not taken back", action="lane.unmark", calls=len(marked), error=str(error))

    async def push(self, out: Outgoing) -> None:
        """Best effort: who isn't told finds the receipt by polling."""
        if not out:
            return
        try:
            await self._parts.inbox.push(out)
        except ServiceUnreachableError as error:
            log.warning("answers not pushed", action="lane.push", inboxes=len(out), error=str(error))

    async def release(self, leases: Sequence[Lease], batch_id: str | None = None) -> None:
        """Free leases and drop the record; what can't be freed now is freed by a sweep."""
        record = self.batches.pop(batch_id, None) if batch_id else None
        if not leases and batch_id is None:
            return
        try:
            await self._parts.leases.release(self._parts.session_id, leases, batch_id)
        except ServiceUnreachableError as error:
            log.warning("leases not released", action="lane.release", leases=len(leases), error=str(error))
            if record is not None:
                self.batches[record.batch_id] = record
            self._unreleased = [*self._unreleased, *leases][-self._parts.limits.unreleased_leases :]

    async def release_again(self) -> None:
        """Free what an unreachable Redis kept, and records that no item of ours needs."""
        leases, self._unreleased = self._unreleased, []
        leases = [lease for lease in leases if lease.key not in self.items and lease.key not in self.kept]
        await self.release(leases)
        for record in list(self.batches.values()):
            if not any(key in self.items or key in self.kept for key in record.keys):
                await self.release([], record.batch_id)

    async def refuse_stopped(self, items: Sequence[Item]) -> list[Item]:
        """Answer calls that only stopped runs wait for, unsent; returns the others."""
        if not self.stopped_runs:
            return list(items)
        wanted: list[Item] = []
        refused: dict[str, list[Item]] = defaultdict(list)
        for item in items:
            if all(waiter.run_id in self.stopped_runs for waiter in item.waiters):
                refused[item.waiters[0].run_id if item.waiters else item.call.run_id].append(item)
            else:
                wanted.append(item)
        for run_id, theirs in refused.items():
            self.prevented += len(theirs)
            log.warning(
                "calls of a stopped run not made",
                action="lane.prevented",
                run_id=run_id,
                calls=len(theirs),
                prevented=self.prevented,
                because=self.stopped_runs[run_id].get("code"),
            )
            await self.fail(theirs, self.stopped_runs[run_id], run_id)
        return wanted

    def stop_runs(self, run_ids: Iterable[str], error: dict[str, Any]) -> None:
        """No further call of these runs is made; the oldest are forgotten beyond the bound."""
        for run_id in run_ids:
            self.stopped_runs.setdefault(run_id, error)
        for run_id in list(self.stopped_runs)[: -self._parts.limits.stopped_runs]:
            del self.stopped_runs[run_id]

    def reserve(self, item: Item) -> bool:
        """Take a forced call's shared key for this process's own order; False: another item here works on it."""
        key = item.call.shared_key
        if key is None or self.forcing.get(key) is item:
            return True
        if key in self.forcing or key in self.items:
            return False
        self.forcing[key] = item
        return True

    def unreserve(self, item: Item) -> None:
        """The shared key is another's, or the call is done."""
        key = item.call.shared_key
        if key is not None and self.forcing.get(key) is item:
            del self.forcing[key]

    def is_forced_by_another(self, item: Item) -> bool:
        """Whether a forced call of this process refreshes the item's key just now."""
        return item.call.key in self.forcing

    def _drop(self, item: Item) -> None:
        if self.items.get(item.call.key) is item:
            del self.items[item.call.key]
            self.unreserve(item)


__all__ = [
    "Accepted",
    "Item",
    "LaneBook",
    "Outgoing",
    "Waiter",
    "answer_of",
    "leases_of",
    "mark_of",
    "outgoing",
]
