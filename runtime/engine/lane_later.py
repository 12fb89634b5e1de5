"""Calls whose ticket is too far away to be held: their callers come back, spread at the lane's rate."""

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from runtime.engine.lane_book import Item, LaneBook
from runtime.engine.lane_flight import Slot
from runtime.engine.lane_parts import LaneParts
from runtime.errors import ServiceUnreachableError

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class FarAway:
    """A ticket that is not worth holding; `due_ms` from now."""

    due_ms: float


class LaterCalls:
    """Puts calls off, each post of them to a later moment; the fleet's pacer knows the last one."""

    def __init__(self, parts: LaneParts, book: LaneBook) -> None:
        self._parts = parts
        self._book = book

    async def put_off(self, slot: Slot, items: Sequence[Item], due_ms: float) -> None:
        """Give ticket and leases back, and tell the callers when to ask again."""
        scope = slot.scope
        until_ms = await self._until_ms(slot, len(items), due_ms) if items else 0.0
        slot.free()
        if not items:
            return
        log.info(
            "calls put off",
            action="lane.put_off",
            lane=scope.lane,
            org=scope.org_id,
            calls=len(items),
            due_ms=round(due_ms),
            until_ms=round(until_ms),
        )
        await self._book.put_off(items, until_ms)

    async def _until_ms(self, slot: Slot, items: int, due_ms: float) -> float:
        limits = self._parts.limits
        try:
            return await slot.later(items, due_ms)
        except ServiceUnreachableError as error:
            log.warning("pacer not asked", action="lane.put_off", lane=slot.lane, error=str(error))
            return min(max(0.0, due_ms - limits.hold_ms / 2), limits.later_max_ms)
