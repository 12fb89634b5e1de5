"""Admission of a post: claim, read receipts under the lease, answer what is finished, queue what is ours."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from runtime.engine.lane_book import Accepted, Item, LaneBook, outgoing
from runtime.engine.lane_commit import Committer
from runtime.engine.lane_parts import LaneParts
from runtime.engine.lane_spec import BatchSpec, SpecKey, batch_spec
from runtime.errors import PlayDefinitionError, ServiceUnreachableError, ToolCallError
from runtime.model.call import Post
from runtime.model.lease import Claim, ClaimVerdict, Lease
from runtime.model.receipt import Receipt
from runtime.ports import ToolCatalog

log = structlog.get_logger()


@dataclass(slots=True)
class _Claimed:
    """A post's items by what Redis said of their leases."""

    granted: list[Item] = field(default_factory=list)
    held: list[Item] = field(default_factory=list)
    grace: list[Item] = field(default_factory=list)
    takeover: dict[str, list[Item]] = field(default_factory=dict)


class Admission:
    """Turns posts into queued items. `enqueue` gets what must be called; `adopt` what a dead session had sent."""

    def __init__(
        self,
        parts: LaneParts,
        book: LaneBook,
        committer: Committer,
        *,
        enqueue: Callable[[Sequence[Item], str, dict[SpecKey, BatchSpec]], None],
        adopt: Callable[[str, list[Item]], None],
    ) -> None:
        self._parts = parts
        self._book = book
        self._committer = committer
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
            leases = [item.lease for item in unsettled if item.fence]
            self._book.leave(unsettled)
            await self._book.release(leases)
            raise

    async def _admit(self, lane: str, items: list[Item]) -> None:
        items = await self._book.refuse_stopped(items)
        specs, items = await self._specs(items)
        started_ms = self._parts.clock.now_ms()
        while items and not self.is_closed:
            await self._committer.wait_open()
            claimed = await self._claim(items, {})
            self._book.leave(claimed.held)
            for batch_id, waiting in claimed.takeover.items():
                self._adopt(batch_id, waiting)
            await self._settle(claimed.granted, lane, specs)
            items = claimed.grace
            if items:
                await self._outwait_grace(items, started_ms)
                items = [item for item in items if self._is_here(item)]
        if items:
            await self._book.give_back(items)

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
                await self._book.fail(refused, error.to_payload())
        return specs, [item for item in items if self._is_here(item)]

    async def _spec(self, catalog: ToolCatalog, tool: str, org_id: str) -> BatchSpec:
        metadata = await self._parts.until_reachable(
            "lane.metadata", lambda: catalog.metadata(tool, org_id), self._parts.limits.lane_wait_ms
        )
        return batch_spec(metadata, self._parts.limits)

    async def _claim(self, items: list[Item], floors: dict[str, int]) -> _Claimed:
        parts = self._parts
        claimed = _Claimed()
        for start in range(0, len(items), parts.limits.receipt_chunk):
            chunk = items[start : start + parts.limits.receipt_chunk]
            keys = [item.call.key for item in chunk]
            claims = await parts.until_reachable(
                "lane.claim",
                lambda keys=keys: parts.leases.claim(parts.session_id, keys, floors),
                parts.limits.lane_wait_ms,
            )
            for item, claim in zip(chunk, claims, strict=True):
                self._sort(item, claim, claimed)
        return claimed

    def _sort(self, item: Item, claim: Claim, claimed: _Claimed) -> None:
        if claim.verdict is ClaimVerdict.GRANTED:
            item.fence = claim.fence
            claimed.granted.append(item)
        elif claim.verdict is ClaimVerdict.GRACE:
            claimed.grace.append(item)
        elif claim.verdict is ClaimVerdict.TAKEOVER and claim.batch_id:
            claimed.takeover.setdefault(claim.batch_id, []).append(item)
        else:
            claimed.held.append(item)

    async def _settle(self, granted: list[Item], lane: str, specs: dict[SpecKey, BatchSpec]) -> None:
        """Answer what receipts answer; queue the rest under fences above the stored ones."""
        if not granted:
            return
        stored = await self._read(granted)
        out = outgoing()
        done: list[Lease] = []
        open_items: list[Item] = []
        for item in granted:
            receipt = stored.get(item.call.key)
            lease = item.lease
            if receipt is not None and self._book.answer_by_receipt(item, receipt, out):
                done.append(lease)
            else:
                open_items.append(item)
        open_items = await self._above_stored(open_items, stored)
        if self.is_closed:
            await self._book.give_back(open_items)
        else:
            self._enqueue(open_items, lane, specs)
        await self._book.release(done)
        await self._book.push(out)
        await self._parts.fault("lane.after_admit")

    async def _read(self, items: list[Item]) -> dict[str, Receipt]:
        """Receipts under our leases. While Postgres is away the lane waits and keeps them."""
        parts = self._parts
        keys = [item.call.key for item in items]
        return await parts.until_reachable(
            "lane.read", lambda: parts.receipts.read(keys), parts.limits.lane_wait_ms
        )

    async def _above_stored(self, items: list[Item], stored: dict[str, Receipt]) -> list[Item]:
        """A fence must be newer than the stored generation, or its commit would be dropped."""
        floors = {
            item.call.key: stored[item.call.key].fence + 1
            for item in items
            if item.call.key in stored and stored[item.call.key].fence >= item.fence
        }
        if not floors:
            return items
        low = [item for item in items if item.call.key in floors]
        again = await self._claim(low, floors)
        lost = {id(item) for item in low} - {id(item) for item in again.granted}
        self._book.leave([item for item in low if id(item) in lost])
        return [item for item in items if id(item) not in lost]

    async def _outwait_grace(self, items: list[Item], started_ms: float) -> None:
        """Redis lost its data: un-admitted calls wait here, never returned, until sessions put theirs back."""
        clock, limits = self._parts.clock, self._parts.limits
        if clock.now_ms() - started_ms > limits.grace_wait_ms:
            log.warning("grace doesn't end", action="lane.grace", calls=len(items))
            self._book.leave(items)
            return
        await clock.sleep(min(limits.heartbeat_s, limits.session_ttl_s / 3) * 1000)

    def _unsettled(self, items: list[Item]) -> list[Item]:
        return [item for item in items if self._is_here(item) and not item.is_queued]

    def _is_here(self, item: Item) -> bool:
        return self._book.items.get(item.call.key) is item
