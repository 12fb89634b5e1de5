"""Admission of a post: claim, read receipts under the lease, answer what is finished, queue what is ours."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import structlog

from runtime.engine.lane_book import Accepted, Item, LaneBook, Outgoing, leases_of, outgoing
from runtime.engine.lane_budget import LaneBudget
from runtime.engine.lane_commit import Committer
from runtime.engine.lane_ended import RunStates
from runtime.engine.lane_fence import Fence
from runtime.engine.lane_parts import LaneParts
from runtime.engine.lane_spec import BatchSpec, SpecKey, batch_spec, spec_key
from runtime.errors import PlayDefinitionError, ServiceUnreachableError, ToolCallError
from runtime.model.call import Post
from runtime.model.lease import Claim, ClaimVerdict, Lease
from runtime.model.receipt import Receipt, ReceiptState
from runtime.policy.identity import refresh_mark_key, refreshed_item_key
from runtime.ports import ToolCatalog

log = structlog.get_logger()


@dataclass(slots=True)
class _Claimed:
    """A post's items by what Redis said of their leases."""

    granted: list[Item] = field(default_factory=list)
    held: list[Item] = field(default_factory=list)
    grace: list[Item] = field(default_factory=list)
    takeover: dict[str, list[Item]] = field(default_factory=dict)
    waiting: list[Item] = field(default_factory=list)  # forced; its shared key is another's just now
    strays: list[Lease] = field(default_factory=list)  # granted, but the item's other key was not


class Admission:
    """Turns posts into queued items. `enqueue` gets what must be called; `adopt` what a dead session had sent."""

    def __init__(
        self,
        parts: LaneParts,
        book: LaneBook,
        committer: Committer,
        fence: Fence,
        states: RunStates,
        *,
        enqueue: Callable[[Sequence[Item], str, dict[SpecKey, BatchSpec]], None],
        adopt: Callable[[str, list[Item]], None],
    ) -> None:
        self._parts = parts
        self._book = book
        self._committer = committer
        self._fence = fence
        self._states = states
        self._budget = LaneBudget(parts, book)
        self._enqueue = enqueue
        self._adopt = adopt
        self.is_closed = False  # set by drain and by a lost session: nothing new is admitted

    async def admit(self, post: Post, accepted: Accepted) -> None:
        """Returns when every call of the post is answered, queued here, or left to its owner."""
        items = self._book.join(post.calls, accepted)
        try:
            await self._admit(post.lane, items)
        except ServiceUnreachableError as error:
            log.warning("post given back", action="lane.give_back", post_id=post.post_id, error=str(error))
            await self._book.give_back(self._unsettled(items))
        except Exception:
            # An error of ours: not returned, or the post would come back at once for ever.
            unsettled = self._unsettled(items)
            leases = leases_of(unsettled)
            self._book.leave(unsettled)
            await self._book.release(leases)
            raise

    async def _admit(self, lane: str, items: list[Item]) -> None:
        items = await self._book.refuse_stopped(items)
        specs, items = await self._specs(items)
        started_ms = self._parts.clock.now_ms()
        while items and not self.is_closed:
            await self._committer.wait_open()
            items = await self._of_live_runs(items)
            claimed = await self._claim(items, {})
            self._book.leave(self._unsettled(claimed.held))
            for batch_id, waiting in claimed.takeover.items():
                self._adopt(batch_id, self._unsettled(waiting))
            await self._book.release(claimed.strays)
            await self._settle(claimed.granted, lane, specs)
            items = await self._outwait(claimed, started_ms)
        if items:
            await self._book.give_back(items)

    async def _of_live_runs(self, items: list[Item]) -> list[Item]:
        """A post may have waited here longer than its run lived. No answer: returned, it would come back at once."""
        parts = self._parts
        gone = await parts.until_reachable(
            "lane.runs", lambda: self._states.without_a_live_run(items), parts.limits.lane_wait_ms
        )
        gone = self._unsettled(gone)
        self._book.leave(gone)
        return [item for item in items if item not in gone]

    async def _specs(self, items: list[Item]) -> tuple[dict[SpecKey, BatchSpec], list[Item]]:
        """Batch strategies of the items' tools; calls of a tool that can't be looked up are answered."""
        specs: dict[SpecKey, BatchSpec] = {}
        for tool, org_id in dict.fromkeys((item.call.tool, item.call.org_id) for item in items):
            try:
                specs[org_id, tool] = await self._spec(self._parts.catalog, tool, org_id)
            except ServiceUnreachableError:
                raise
            except (ToolCallError, PlayDefinitionError) as error:
                refused = [item for item in items if item.call.tool == tool and item.call.org_id == org_id]
                await self._book.fail(self._unsettled(refused), error.to_payload())
        return specs, self._unsettled(items)

    async def _spec(self, catalog: ToolCatalog, tool: str, org_id: str) -> BatchSpec:
        metadata = await self._parts.until_reachable(
            "lane.metadata", lambda: catalog.metadata(tool, org_id), self._parts.limits.lane_wait_ms
        )
        return batch_spec(metadata, self._parts.limits)

    async def _claim(self, items: list[Item], floors: dict[str, int]) -> _Claimed:
        parts = self._parts
        claimed = _Claimed()
        wanted: list[Item] = []
        for item in self._unsettled(items):
            if self._book.is_forced_by_another(item):
                claimed.held.append(item)
            elif self._book.reserve(item):
                wanted.append(item)
            else:
                claimed.waiting.append(item)
        half = parts.limits.receipt_chunk // 2 or 1  # an item has one key or two
        for start in range(0, len(wanted), half):
            chunk = wanted[start : start + half]
            keys = [key for item in chunk for key in _keys_of(item)]
            claims = await parts.until_reachable(
                "lane.claim",
                lambda keys=keys: parts.leases.claim(parts.session_id, keys, floors),
                parts.limits.lane_wait_ms,
            )
            answered = iter(claims)
            for item in chunk:
                self._sort(item, next(answered), next(answered) if item.call.shared_key else None, claimed)
        return claimed

    def _sort(self, item: Item, own: Claim, shared: Claim | None, claimed: _Claimed) -> None:
        """By what Redis said of its key and, for a forced call, of the shared one."""
        if not self._is_unsettled(item):  # an adopted batch has it since it was asked for
            granted = [c for c in (own, shared) if c is not None and c.verdict is ClaimVerdict.GRANTED]
            held = item.leases if self._is_here(item) else []
            claimed.strays += [lease for lease in map(_lease_of, granted) if lease not in held]
            return
        item.fence = own.fence if own.verdict is ClaimVerdict.GRANTED else 0
        item.shared_fence = shared.fence if shared and shared.verdict is ClaimVerdict.GRANTED else 0
        verdicts = {own.verdict} | ({shared.verdict} if shared else set[ClaimVerdict]())
        if verdicts == {ClaimVerdict.GRANTED}:
            claimed.granted.append(item)
            return
        claimed.strays += item.leases
        item.fence = item.shared_fence = 0
        self._book.unreserve(item)
        if ClaimVerdict.GRACE in verdicts:
            claimed.grace.append(item)
        elif own.verdict is ClaimVerdict.TAKEOVER and own.batch_id:
            claimed.takeover.setdefault(own.batch_id, []).append(item)
        elif own.verdict is not ClaimVerdict.GRANTED:
            claimed.held.append(item)
        else:
            claimed.waiting.append(item)
            if shared and shared.verdict is ClaimVerdict.TAKEOVER and shared.batch_id:
                claimed.takeover.setdefault(shared.batch_id, [])

    async def _settle(self, granted: list[Item], lane: str, specs: dict[SpecKey, BatchSpec]) -> None:
        """Answer what receipts answer; queue the rest under fences above the stored ones."""
        if not granted:
            return
        stored = await self._read(granted)
        out = outgoing()
        done: list[Lease] = []
        open_items: list[Item] = []
        for item in granted:
            leases = item.leases
            if self._is_answered(item, stored, out):
                done += leases
            else:
                _replace_stored(
                    item, stored.get(item.call.key), is_fenced=specs[spec_key(item.call)].is_fenced
                )
                open_items.append(item)
        try:
            open_items = await self._above_stored(open_items, stored)
            open_items = await self._budget.admit(open_items, specs)
            open_items = await self._fence.sendable(open_items, stored)
            if self.is_closed:
                await self._book.give_back(open_items)
            else:
                self._enqueue(open_items, lane, specs)
        finally:
            await self._book.release(done)
            await self._book.push(out)
        await self._parts.fault("lane.after_admit")

    def _is_answered(self, item: Item, stored: dict[str, Receipt], out: Outgoing) -> bool:
        """Answer whom stored receipts serve, the newest version's first; True if nobody is left."""
        for key in item.call.lookup_keys:
            receipt = stored.get(key)
            if receipt is not None and self._book.answer_by_receipt(item, receipt, out):
                return True
        return False

    async def _read(self, items: list[Item]) -> dict[str, Receipt]:
        """Receipts under our leases. While Postgres is away the lane waits and keeps them."""
        parts = self._parts
        keys = [key for item in items for key in (*_keys_of(item), *item.call.read_keys)]
        return await parts.until_reachable(
            "lane.read", lambda: parts.receipts.read(keys), parts.limits.lane_wait_ms
        )

    async def _above_stored(self, items: list[Item], stored: dict[str, Receipt]) -> list[Item]:
        """A fence must be newer than the stored generation, or its commit would be dropped."""
        floors = {
            lease.key: stored[lease.key].fence + 1
            for lease in leases_of(items)
            if lease.key in stored and stored[lease.key].fence >= lease.fence
        }
        if not floors:
            return items
        low = [item for item in items if any(key in floors for key in _keys_of(item))]
        again = await self._claim(low, floors)
        lost = {id(item) for item in low} - {id(item) for item in again.granted}
        self._book.leave([item for item in low if id(item) in lost])
        await self._book.release(again.strays)
        return [item for item in items if id(item) not in lost]

    async def _outwait(self, claimed: _Claimed, started_ms: float) -> list[Item]:
        """Items to claim again after a while; none once that took too long, then their callers post them again.

        After Redis lost its data un-admitted calls wait here, never returned, until sessions put theirs back; forced
        calls wait for who works on their shared key.
        """
        items = [*claimed.grace, *claimed.waiting]
        if not items:
            return []
        clock, limits = self._parts.clock, self._parts.limits
        if clock.now_ms() - started_ms > limits.grace_wait_ms:
            log.warning("calls can't be claimed", action="lane.grace", calls=len(items))
            self._book.leave(items)
            return []
        grace_ms = min(limits.heartbeat_s, limits.session_ttl_s / 3) * 1000
        await clock.sleep(grace_ms if claimed.grace else limits.lane_retry_ms)
        return self._unsettled(items)

    def _unsettled(self, items: Sequence[Item]) -> list[Item]:
        """Those that are the admission's still: not answered, not queued, not a batch's that was adopted meanwhile."""
        return [item for item in items if self._is_unsettled(item)]

    def _is_unsettled(self, item: Item) -> bool:
        return self._is_here(item) and not item.is_queued

    def _is_here(self, item: Item) -> bool:
        return self._book.items.get(item.call.key) is item


def _lease_of(claim: Claim) -> Lease:
    return Lease(key=claim.key, fence=claim.fence)


def _keys_of(item: Item) -> tuple[str, ...]:
    """Keys whose leases the item needs."""
    call = item.call
    return (call.key,) if call.shared_key is None else (call.key, call.shared_key)


def _replace_stored(item: Item, stored: Receipt | None, *, is_fenced: bool) -> None:
    """A completed receipt that is too old is bought anew, under a provider key that all buyers of it share."""
    if stored is not None and stored.state is ReceiptState.COMPLETED:
        item.refreshes = True
        item.mark_key = refresh_mark_key(item.call.key, stored.fence) if is_fenced else None
        key = refreshed_item_key(item.call.idempotency_key, stored.fence)
        item.call = replace(item.call, idempotency_key=key)
