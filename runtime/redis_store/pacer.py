"""The fleet's Pacer: tickets of a rate scope from Redis, and so many of them in line per process."""

import sys
from collections.abc import Callable, Hashable, Sequence
from uuid import uuid4

import structlog
from redis.asyncio import Redis

from runtime.engine.plain_pacer import PlainPacer, PlainTicket
from runtime.errors import ServiceUnreachableError
from runtime.model.rate_scope import LanePacing, RateScope
from runtime.policy import pacing
from runtime.policy.limits import Limits
from runtime.ports import Clock
from runtime.redis_store.gathered import Gathered
from runtime.redis_store.lane_counts import LaneCounts, LaneKey
from runtime.redis_store.pacer_scripts import Ask, Pace, PacerScripts, PaceSnapshot, Verdict
from runtime.redis_store.tickets import RedisTicket

log = structlog.get_logger()


class RedisPacer:
    """One session's tickets. `lane_pacing(lane)` is what the lane table says."""

    def __init__(
        self,
        redis: Redis,
        limits: Limits,
        clock: Clock,
        *,
        session_id: str,
        lane_pacing: Callable[[str], LanePacing],
        scripts: PacerScripts | None = None,
    ) -> None:
        self.scripts = scripts or PacerScripts(redis, limits)
        self.limits = limits
        self.clock = clock
        self.session_id = session_id
        self._lane_pacing = lane_pacing
        self._paces: dict[RateScope, Pace] = {}
        self._latency_ms: dict[str, float] = {}
        self._widths: dict[str, int] = {}
        self._places = PlainPacer(lambda name: self._widths.get(name, limits.groups_per_lane), limits.groups)
        self._aheads: dict[str, int] = {}
        # Few moments are asked for ahead: a process that took many in a row would make the others' calls wait.
        self._moments = PlainPacer(lambda name: self._aheads.get(name, 1), sys.maxsize)
        self.counts = LaneCounts(redis, limits, session_id, self._in_line)
        self._succeeded_ms: dict[Pace, float] = {}
        self._waits: dict[Pace, set[str]] = {}
        self._holding: dict[str, Pace] = {}  # tickets with a concurrency slot
        self._unfreed: dict[str, Pace] = {}  # what an unreachable Redis kept
        self.reserving: Gathered[Pace, tuple[str, int], float] = Gathered(
            self.scripts.reserve, limits.pacing_asks
        )
        self.confirming: Gathered[Pace, Ask, Verdict] = Gathered(self._confirm, limits.pacing_asks)
        self.leaving: Gathered[Pace, tuple[str, float], None] = Gathered(self._sent, limits.pacing_asks)
        self._freeing: Gathered[Pace, str, None] = Gathered(self._free, limits.pacing_asks)

    async def reserve(self, scope: RateScope, items: int, turn: Hashable = "") -> RedisTicket:
        """A ticket that isn't in line yet: `due` does that."""
        pace = self.pace(scope)
        name = _line_name(scope)
        self._widths[name] = self._width(pace, name)
        ahead = self._places.ahead(name, turn)
        self.counts.changed(pace)
        return RedisTicket(self, pace, name, self._places.place(name, turn), items, ahead)

    def pace(self, scope: RateScope) -> Pace:
        """The scope with its lane's defaults, as meters."""
        known = self._paces.get(scope)
        if known is None and scope.is_fixture and not self.limits.fixture_pacing:
            known = self._paces[scope] = Pace(scope=scope, meters=())
        if known is None:
            lane = self._lane_pacing(scope.lane)
            rules = pacing.merged(scope.rules, lane.rules)
            known = self._paces[scope] = Pace(
                scope=scope,
                meters=pacing.meters(rules, scope.max_batch_size, self.limits),
                concurrency=scope.concurrency or lane.concurrency or 0,
            )
        return known

    async def snapshot(self, scope: RateScope) -> PaceSnapshot:
        """What the scope is up to, fleet wide."""
        return await self.scripts.snapshot(self.pace(scope))

    async def renew(self) -> None:
        """With every heartbeat: free again what could not be freed, put back slots that Redis lost."""
        unfreed, self._unfreed = self._unfreed, {}
        for ticket_id, pace in unfreed.items():
            self._freeing.ask(pace, ticket_id)
        by_pace: dict[Pace, list[str]] = {}
        for ticket_id, pace in self._holding.items():
            by_pace.setdefault(pace, []).append(ticket_id)
        for pace, ticket_ids in by_pace.items():
            await self.scripts.restore(pace, self.session_id, ticket_ids)

    async def idle(self) -> None:
        """Returns when no script of ours is on its way."""
        await self.leaving.idle()
        await self._freeing.idle()

    def moments_asked(self, name: str) -> int:
        """Tickets of this process that have or want their moment."""
        return self._moments.in_use(name) + self._moments.waiting(name)

    def moment_place(self, name: str, spacing_ms: float) -> PlainTicket:
        """A turn to ask for a moment."""
        self._aheads[name] = pacing.tickets_ahead(spacing_ms, self.limits)
        return self._moments.place(name)

    def in_use(self, scope: RateScope) -> int:
        """Places of this process in use."""
        return self._places.in_use(_line_name(scope))

    def _in_line(self, lane_key: LaneKey) -> int:
        return sum(self._places.waiting(_name(*lane_key, shape)) for shape in ("scalar", "batch"))

    # ---- for its tickets

    def granted(self, ticket_id: str, pace: Pace) -> None:
        if pace.concurrency:
            self._holding[ticket_id] = pace

    def ended(self, ticket_id: str, pace: Pace) -> None:
        """The ticket's tokens and slot go back, in the background."""
        self._holding.pop(ticket_id, None)
        self._freeing.ask(pace, ticket_id)

    def is_waited_for(self, pace: Pace) -> bool:
        """Whether a ticket of this process waits for its moment."""
        return bool(self._waits.get(pace))

    def waits(self, pace: Pace, ticket_id: str, *, is_waiting: bool) -> None:
        if is_waiting:
            self._waits.setdefault(pace, set()).add(ticket_id)
        elif pace in self._waits:
            self._waits[pace].discard(ticket_id)

    def took(self, name: str, latency_ms: float) -> None:
        self._latency_ms[name] = pacing.smoothed_ms(self._latency_ms.get(name), latency_ms)

    async def limited(self, pace: Pace, retry_after_ms: float | None) -> float:
        closed_ms = await self.scripts.limited(
            pace, f"r{uuid4().hex}", retry_after_ms, self.limits.retry_fallback_ms
        )
        log.warning(
            "rate limited",
            action="pacer.limited",
            lane=pace.scope.lane,
            provider=pace.scope.provider,
            asked_ms=retry_after_ms,
            closed_ms=round(closed_ms),
        )
        return closed_ms

    async def succeeded(self, pace: Pace) -> None:
        """A lowered rate recovers; asked at most once a while."""
        now_ms = self.clock.now_ms()
        last_ms = self._succeeded_ms.get(pace)
        if last_ms is None or now_ms - last_ms >= self.limits.pacing_recover_ms:
            self._succeeded_ms[pace] = now_ms
            await self.scripts.succeeded(pace)

    async def _confirm(self, pace: Pace, asks: Sequence[Ask]) -> list[Verdict]:
        return await self.scripts.confirm(pace, self.session_id, asks)

    async def _sent(self, pace: Pace, tickets: Sequence[tuple[str, float]]) -> list[None]:
        try:
            await self.scripts.sent(pace, tickets)
        except ServiceUnreachableError as error:
            log.warning("late requests not told", action="pacer.sent", error=str(error))
        return [None] * len(tickets)

    async def _free(self, pace: Pace, ticket_ids: Sequence[str]) -> list[None]:
        try:
            await self.scripts.free(pace, ticket_ids)
        except ServiceUnreachableError as error:
            log.warning("tickets not freed", action="pacer.free", tickets=len(ticket_ids), error=str(error))
            self._unfreed |= dict.fromkeys(ticket_ids, pace)
        return [None] * len(ticket_ids)

    def _width(self, pace: Pace, name: str) -> int:
        return pacing.parallelism(
            pace.meters,
            is_scalar=pace.scope.max_batch_size == 1,
            latency_ms=self._latency_ms.get(name, 0.0),
            groups=self._lane_pacing(pace.scope.lane).groups,
            limits=self.limits,
        )


def _line_name(scope: RateScope) -> str:
    shape = "scalar" if scope.max_batch_size == 1 else "batch"
    return _name(scope.lane, scope.org_id, scope.state_name, shape)


def _name(*parts: str) -> str:
    return "\0".join(parts)
