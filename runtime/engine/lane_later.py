"""Calls whose ticket is too far away to be held: their callers come back, spread at the lane's rate."""

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from runtime.engine.lane_book import Item, LaneBook
from runtime.engine.lane_flight import Slot
from runtime.engine.lane_parts import LaneParts
from runtime.model.rate_scope import RateScope
from runtime.policy.pacing import later_ms

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class FarAway:
    """A ticket that is not worth holding; `due_ms` from now."""

    due_ms: float


class LaterCalls:
    """Puts calls off; remembers per rate scope when the last one comes back."""

    def __init__(self, parts: LaneParts, book: LaneBook) -> None:
        self._parts = parts
        self._book = book
        self._last_ms: dict[RateScope, float] = {}

    async def put_off(self, slot: Slot, items: Sequence[Item], due_ms: float) -> None:
        """Give ticket and leases back, and tell the callers when to ask again."""
        now_ms, scope = self._parts.clock.now_ms(), slot.scope
        until_ms = later_ms(
            due_ms=due_ms,
            now_ms=now_ms,
            last_ms=self._last_ms.get(scope),
            spacing_ms=slot.spacing_ms(len(items)),
            limits=self._parts.limits,
        )
        slot.free()
        if not items:
            return
        self._last_ms = {of: last_ms for of, last_ms in self._last_ms.items() if last_ms > now_ms}
        self._last_ms[scope] = now_ms + until_ms
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
