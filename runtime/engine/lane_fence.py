"""Calls whose effect must not happen twice: a durable mark before they leave, and what a mark without outcome means."""

from collections.abc import Mapping, Sequence

import structlog

from runtime.engine.lane_book import Item, LaneBook, answer_of, leases_of, outgoing
from runtime.engine.lane_flight import Flight
from runtime.engine.lane_parts import LaneParts
from runtime.errors import ServiceUnreachableError, ToolOutcomeUnknownError
from runtime.model.receipt import Receipt, ReceiptState

log = structlog.get_logger()


class Fence:
    """Marks `dispatched` before the seal; a mark whose process is gone is replayed only under an attested fence."""

    def __init__(self, parts: LaneParts, book: LaneBook) -> None:
        self._parts = parts
        self._book = book

    async def mark(self, flight: Flight) -> None:
        """Store that these calls are about to be sent. What others have settled meanwhile leaves the flight."""
        parts = self._parts
        marks = [_receipt(item, ReceiptState.DISPATCHED) for item in flight.items if not item.refreshes]
        started_ms = parts.clock.now_ms()
        stored = await parts.until_reachable(
            "lane.mark", lambda: parts.receipts.commit(parts.session_id, marks, ()), parts.limits.lane_wait_ms
        )
        ours = [
            item for item in flight.items if item.refreshes or _is_mark_of(stored.get(item.call.key), item)
        ]
        await self._leave([item for item in flight.items if item not in ours], stored)
        flight.items = ours
        if ours and parts.clock.now_ms() - started_ms >= parts.limits.lane_retry_ms:
            # The ticket's moment has passed while the store was away.
            flight.slot.free()
            await flight.slot.take(len(ours))

    async def unmark(self, items: Sequence[Item]) -> None:
        """Take back marks of calls that were certainly not sent. Best effort: a mark that stays is only cautious."""
        marks = [_receipt(item, ReceiptState.DISPATCHED) for item in items]
        if not marks:
            return
        try:
            await self._parts.receipts.unmark(self._parts.session_id, marks)
        except ServiceUnreachableError as error:
            log.warning("marks not taken back", action="lane.unmark", calls=len(marks), error=str(error))

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
        doubtful = [item for item in items if _is_mark(stored.get(item.call.key))]
        if not doubtful:
            return items
        if await self.is_attested(self._parts.limits.lane_wait_ms):
            log.warning("sent again under an attested fence", action="lane.fence", calls=len(doubtful))
            return items
        await self._end_unknown(doubtful)
        return [item for item in items if item not in doubtful]

    async def _end_unknown(self, items: Sequence[Item]) -> None:
        parts = self._parts
        receipts = [_receipt(item, ReceiptState.UNKNOWN, error=_lost(item.call.tool)) for item in items]
        stored = await parts.until_reachable(
            "lane.fence",
            lambda: parts.receipts.commit(parts.session_id, receipts, ()),
            parts.limits.lane_wait_ms,
        )
        out = outgoing()
        leases = leases_of(items)
        for item in items:
            self._book.answer(item, answer_of(stored[item.call.key], cached=False), out)
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


def _receipt(item: Item, state: ReceiptState, error: dict[str, object] | None = None) -> Receipt:
    call = item.call
    return Receipt(
        key=call.key,
        org_id=call.org_id,
        tool=call.tool,
        run_id=call.run_id,
        state=state,
        fence=item.fence,
        error=error,
        terminal=state is ReceiptState.UNKNOWN,
    )
