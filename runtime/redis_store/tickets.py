"""A ticket of the fleet's pacer: a place in its process's line, then a moment in the fleet's."""

import asyncio
from math import inf
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from runtime.engine.plain_pacer import PlainTicket
from runtime.policy import pacing
from runtime.redis_store.pacer_scripts import Ask, Pace

if TYPE_CHECKING:
    from runtime.redis_store.pacer import RedisPacer


class RedisTicket:
    """A place in this process's line, then a moment in the fleet's."""

    def __init__(
        self, pacer: "RedisPacer", pace: Pace, name: str, place: PlainTicket, items: int, ahead: int = 0
    ) -> None:
        self._pacer = pacer
        self._pace = pace
        self._name = name
        self._place = place
        self._items = items
        self._ahead = ahead  # of it in this process's line
        self._moment: PlainTicket | None = None
        self._id = uuid4().hex
        self._asked: asyncio.Future[Any] | None = None
        self._granted_ms: float | None = None
        self._granted = 0
        self._confirming_ms = 0.0
        self._is_known = False  # to Redis
        self._factor = 1.0
        self._freed = False

    async def due(self, hold_ms: float = inf) -> float:
        """Returns at this ticket's moment, as far as it is known; at once if that is further than `hold_ms`."""
        ahead_ms = self._ahead * self.spacing_ms(self._items)
        if ahead_ms > hold_ms:
            return ahead_ms  # at least: other processes have lines of their own
        await self._place.due()
        if self._pace.is_open:
            return 0.0  # closed or not is told at the confirmation
        spacing_ms = self.spacing_ms(self._items)
        ahead_ms = self._pacer.moments_asked(self._name) * spacing_ms
        if ahead_ms > hold_ms:
            return ahead_ms
        self._moment = self._pacer.moment_place(self._name, spacing_ms)
        await self._moment.due()
        if not self._pacer.is_waited_for(self._pace):
            return 0.0  # nobody here is in line: the confirmation gives it its moment, and may be at once
        self._is_known = True
        self._pacer.waits(self._pace, self._id, is_waiting=True)
        self._asked = asked = self._pacer.reserving.ask(self._pace, (self._id, max(1, self._items)))
        wait_ms = await asyncio.shield(asked)
        if wait_ms > hold_ms:
            return wait_ms
        if wait_ms > 0:
            await self._pacer.clock.sleep(wait_ms)
        return 0.0

    def spacing_ms(self, items: int) -> float:
        """How far apart requests of so many items go, at the rate as last seen."""
        return pacing.spacing_ms(self._pace.meters, items, self._factor)

    async def later(self, items: int, due_ms: float) -> float:
        """How long calls that are put off should stay away; the cursor is the fleet's."""
        return await self._pacer.scripts.later(
            self._pace, uuid4().hex, due_ms=due_ms, spacing_ms=self.spacing_ms(items)
        )

    async def confirm(self, most: int, *, whole: bool = False) -> tuple[int, float]:
        """(items to send now, 0), or (0, ms to wait) in its place. `whole`: all of `most` or none."""
        self._confirming_ms = self._pacer.clock.now_ms()
        ask = Ask(ticket_id=self._id, least=most if whole else 0, most=most)
        self._is_known = self._is_known or not self._pace.is_open
        self._asked = asked = self._pacer.confirming.ask(self._pace, ask)
        verdict = await asyncio.shield(asked)
        self._factor = verdict.factor
        self._is_known = self._is_known or not verdict.items
        self._pacer.waits(self._pace, self._id, is_waiting=not verdict.items)
        if verdict.items:
            self._pass_on()
            if not self._freed:
                self._pacer.granted(self._id, self._pace)
                if self._granted_ms is None:
                    self._pacer.counts.on_the_wire(self._pace, 1)
            self._granted_ms = self._pacer.clock.now_ms()
            self._granted = verdict.items
        return verdict.items, verdict.wait_ms

    def sent(self) -> None:
        """The request leaves now; if that is late, it counts from now."""
        self._pacer.counts.sent(self._pace, self._granted)
        late_ms = self._pacer.clock.now_ms() - self._confirming_ms
        if self._pace.meters and late_ms > self._pacer.limits.pacing_late_ms:
            self._asked = self._pacer.leaving.ask(self._pace, (self._id, late_ms))

    async def limited(self, retry_after_ms: float | None) -> None:
        """The provider answered 429."""
        await self._pacer.limited(self._pace, retry_after_ms)

    async def succeeded(self) -> None:
        """The provider answered."""
        if self._factor < 1:
            await self._pacer.succeeded(self._pace)

    def free(self) -> None:
        if self._freed:
            return
        self._freed = True
        self._pacer.waits(self._pace, self._id, is_waiting=False)
        self._place.free()
        self._pass_on()
        if self._granted_ms is not None:
            self._pacer.counts.on_the_wire(self._pace, -1)
            self._pacer.took(self._name, self._pacer.clock.now_ms() - self._granted_ms)
        if not self._is_known:
            return
        if self._asked is not None and not self._asked.done():
            # What was asked last may still be on its way: freed only behind it.
            self._asked.add_done_callback(lambda asked: self._end(asked.cancelled() or asked.exception()))
        else:
            self._end(None)

    def _pass_on(self) -> None:
        """The next of this process may ask for its moment."""
        moment, self._moment = self._moment, None
        if moment is not None:
            moment.free()

    def _end(self, _seen: object) -> None:
        self._pacer.ended(self._id, self._pace)
