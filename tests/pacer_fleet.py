"""Several processes' pacers over one Redis in virtual time: time moves on only when nobody has anything to do."""

import asyncio
import heapq
import itertools
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from redis.asyncio import Redis

from runtime.model.rate_scope import LanePacing, RateScope
from runtime.model.tool import PacingRule
from runtime.policy.limits import Limits
from runtime.redis_store import keys
from runtime.redis_store.pacer import RedisPacer
from runtime.redis_store.pacer_scripts import Pace, PacerScripts

LIMITS = Limits()
QUIET_TURNS = 25


class VirtualClock:
    """Sleepers wake in order when `step` moves time to the next of them."""

    def __init__(self, now_ms: float = 1e12) -> None:
        self._now_ms = now_ms
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = itertools.count()

    def now_ms(self) -> float:
        return self._now_ms

    def now_us(self) -> int:
        return round(self._now_ms * 1000)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Any:
        raise NotImplementedError("a pacer only sleeps")

    async def sleep(self, delay_ms: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now_ms + max(0.0, delay_ms), next(self._order), woken))
        await woken

    def step(self) -> None:
        """Move time to the next sleeper."""
        assert self._sleepers, "everybody waits and nobody sleeps"
        due_ms, _order, woken = heapq.heappop(self._sleepers)
        self._now_ms = max(self._now_ms, due_ms)
        if not woken.done():
            woken.set_result(None)


class _CountedScripts(PacerScripts):
    in_flight = 0

    async def _run(self, script: Any, pace: Pace, *arguments: Any) -> Any:
        _CountedScripts.in_flight += 1
        try:
            return await super()._run(script, pace, *arguments)
        finally:
            _CountedScripts.in_flight -= 1


class VirtualFleet:
    """`pacers` of the sessions s0, s1, …; `sent` holds (ms, items) of every grant."""

    def __init__(
        self,
        redis: Redis,
        sessions: int,
        rules: Sequence[PacingRule],
        *,
        max_batch_size: int = 10,
        concurrency: int | None = None,
        limits: Limits = LIMITS,
    ) -> None:
        self.redis = redis
        self.clock = VirtualClock()
        self.scope = RateScope(
            lane="l",
            org_id="o",
            provider="p",
            max_batch_size=max_batch_size,
            rules=tuple(rules),
            concurrency=concurrency,
        )
        self.sessions = [f"s{n}" for n in range(sessions)]
        self.pacers = [self._pacer(session, limits) for session in self.sessions]
        self.sent: list[tuple[float, int]] = []
        self._started_ms = self.clock.now_ms()

    def _pacer(self, session: str, limits: Limits) -> RedisPacer:
        return RedisPacer(
            self.redis,
            limits,
            self.clock,
            session_id=session,
            lane_pacing=lambda _lane: LanePacing(),
            scripts=_CountedScripts(self.redis, limits, now_us=self.clock.now_us),
        )

    async def start(self) -> "VirtualFleet":
        await self.redis.set(keys.EPOCH, "e")
        for session in self.sessions:
            await self.redis.set(keys.session(session), "1")
        return self

    @property
    def now_ms(self) -> float:
        return self.clock.now_ms() - self._started_ms

    async def clock_to(self, now_ms: float) -> None:
        """Let time pass with nobody doing anything."""
        await self.run(self.clock.sleep(now_ms - self.now_ms))

    async def run(self, *works: Coroutine[Any, Any, Any]) -> None:
        """All works to their end; their errors are raised."""
        tasks = [asyncio.get_running_loop().create_task(work) for work in works]
        while not all(task.done() for task in tasks):
            await self.quiet()
            if not all(task.done() for task in tasks):
                self.clock.step()
        await asyncio.gather(*tasks)

    async def quiet(self) -> None:
        """Nothing runs but sleepers."""
        quiet = 0
        while quiet < QUIET_TURNS:
            await asyncio.sleep(0 if not _CountedScripts.in_flight else 0.0002)
            quiet = 0 if _CountedScripts.in_flight else quiet + 1

    async def send(
        self, pacer: RedisPacer, most: int, *, during: Callable[[], Awaitable[None]] | None = None
    ) -> int:
        """One request of up to `most` items: in line, confirmed, on the wire for `during`, freed."""
        ticket = await pacer.reserve(self.scope, most)
        await ticket.due()
        granted, wait_ms = await ticket.confirm(most)
        while not granted:
            await self.clock.sleep(wait_ms)
            granted, wait_ms = await ticket.confirm(most)
        self.sent.append((self.now_ms, granted))
        if during is not None:
            await during()
        ticket.free()
        return granted

    async def send_all(self, pacer: RedisPacer, calls: int, batch: int) -> None:
        while calls:
            calls -= await self.send(pacer, min(batch, calls))

    def most_in_window(self, window_ms: float, weight: Callable[[int], int]) -> int:
        """The fullest sliding window of what was sent."""
        return max(
            sum(weight(items) for at, items in self.sent if end - window_ms < at <= end)
            for end, _items in self.sent
        )
