"""Calls whose effect must not happen twice: a durable mark before they leave, and what a mark without outcome means."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import structlog

from runtime.engine.lane_book import Item, LaneBook, answer_of, leases_of, mark_of, outgoing
from runtime.engine.lane_parts import LaneParts
from runtime.errors import ServiceUnreachableError, ToolOutcomeUnknownError
from runtime.model.receipt import Receipt, ReceiptState

log = structlog.get_logger()


class Fence:
    """Marks `dispatched` before the ticket; a mark whose process is gone is replayed only under an attested fence."""

    def __init__(self, parts: LaneParts, book: LaneBook) -> None:
        self._parts = parts
        self._book = book

    async def mark(self, items: Sequence[Item]) -> list[Item]:
        """Store that these calls are about to be sent. Returns those that others have settled meanwhile."""
        fresh = [item for item in items if not item.is_marked]
        if not fresh:
            return []
        parts = self._parts
        marks = [mark_of(item) for item in fresh]
        stored = await parts.until_reachable(
            "lane.mark", lambda: parts.receipts.commit(parts.session_id, marks, ()), parts.limits.lane_wait_ms
        )
        for item, mark in zip(fresh, marks, strict=True):
            item.is_marked = _is_mark_of(stored.get(mark.key), item)
        gone = [item for item in fresh if not item.is_marked]
        await self._leave(gone, stored)
        return gone

    async def settled(self, items: Sequence[Item]) -> None:
        """What became of these refreshes is known: their marks beside the kept results go."""
        for item in items:
            item.is_marked = item.mark_key is not None
        await self._book.unmark(items)

    async def is_attested(self, within_ms: float) -> bool:
        """Whether the API promises that a repeat is harmless; raises ServiceUnreachableError if it stays silent."""
        parts = self._parts
        return await parts.until_reachable("lane.fence", parts.requests.attests_fence, within_ms)

    async def is_attested_now(self) -> bool:
        """The same, where silence means no."""
        try:
            return await self.is_attested(self._parts.limits.fence_wait_ms)
        except ServiceUnreachableError as error:
            log.warning("fence not verified", action="lane.fence", error=str(error))
            return False

    async def sendable(self, items: list[Item], stored: Mapping[str, Receipt]) -> list[Item]:
        """Items that may be sent; one that was perhaps sent by a process that is gone may end unknown instead."""
        refreshes = [item.mark_key for item in items if item.mark_key]
        marks = dict(stored) | (await self._read(refreshes) if refreshes else {})
        doubtful = [item for item in items if _is_mark(marks.get(item.mark_key or item.call.key))]
        if not doubtful:
            return items
        if await self.is_attested(self._parts.limits.lane_wait_ms):
            log.warning("sent again under an attested fence", action="lane.fence", calls=len(doubtful))
            return items
        await self._end_unknown(doubtful)
        return [item for item in items if item not in doubtful]

    async def _read(self, keys: Sequence[str]) -> dict[str, Receipt]:
        parts = self._parts
        return await parts.until_reachable(
            "lane.read", lambda: parts.receipts.read(keys), parts.limits.lane_wait_ms
        )

    async def _end_unknown(self, items: Sequence[Item]) -> None:
        parts = self._parts
        receipts = [_unknown(item) for item in items]
        stored = await parts.until_reachable(
            "lane.fence",
            lambda: parts.receipts.commit(parts.session_id, receipts, ()),
            parts.limits.lane_wait_ms,
        )
        out = outgoing()
        leases = leases_of(items)
        for item, unknown in zip(items, receipts, strict=True):
            # A refresh leaves the older result where it is; who asked for a younger one isn't served by it.
            known = unknown if item.mark_key else stored[item.call.key]
            self._book.answer(item, answer_of(known, cached=False), out)
        await self._book.release(leases)
        await self._book.push(out)

    async def _leave(self, items: Sequence[Item], stored: Mapping[str, Receipt]) -> None:
        if not items:
            return
        log.warning("settled by others before sending", action="lane.mark", calls=len(items))
        out = outgoing()
        leases = leases_of(items)
        for item in items:
            receipt = stored.get(item.call.key)
            if receipt is None or not self._book.answer_by_receipt(item, receipt, out):
                self._book.leave([item])
        await self._book.release(leases)
        await self._book.push(out)


def _is_mark(receipt: Receipt | None) -> bool:
    return receipt is not None and receipt.state is ReceiptState.DISPATCHED


def _is_mark_of(receipt: Receipt | None, item: Item) -> bool:
    return receipt is not None and _is_mark(receipt) and receipt.fence == item.fence


def _lost(tool: str) -> dict[str, object]:
    return ToolOutcomeUnknownError(
        f"{tool} was about to be sent, or was sent, by a process that is gone, and the API attests no fence:"
        " it may have been charged; it is asked again only when forced",
        tool=tool,
    ).to_payload()


def _unknown(item: Item) -> Receipt:
    marked = mark_of(item)
    return replace(
        marked, key=item.call.key, state=ReceiptState.UNKNOWN, error=_lost(marked.tool), terminal=True
    )
