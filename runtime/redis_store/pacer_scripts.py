"""The pacer's Lua as typed calls. Every one is safe to repeat with the same ids."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from runtime.model.rate_scope import RateScope
from runtime.policy.limits import Limits
from runtime.policy.pacing import Meter
from runtime.redis_store import keys
from runtime.redis_store.scripts import Script

_PRELUDE = "pacer_prelude"
_RESERVE = Script("pacer_reserve", _PRELUDE)
_CONFIRM = Script("pacer_confirm", _PRELUDE)
_SENT = Script("pacer_sent", _PRELUDE)
_FREE = Script("pacer_free", _PRELUDE)
_LIMITED = Script("pacer_limited", _PRELUDE)
_LATER = Script("pacer_later", _PRELUDE)
_SUCCEEDED = Script("pacer_succeeded", _PRELUDE)
_RESTORE = Script("pacer_restore", _PRELUDE)
_SNAPSHOT = Script("pacer_snapshot", _PRELUDE)
_KEEPING = (_RESERVE, _CONFIRM)  # these leave state behind, which lives as long as it is used


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """A rate scope with its meters, and what of it is the same at every script."""

    scope: RateScope
    meters: tuple[Meter, ...]
    concurrency: int = 0  # 0: not capped

    @property
    def is_open(self) -> bool:
        """Nothing is counted; it can only be closed."""
        return not self.meters and not self.concurrency


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A due ticket. `least` > 0: that many or none; 0: as many as were reserved, up to `most`."""

    ticket_id: str
    least: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`items` granted, or 0 and how long to wait. `factor`: of the full rate, lowered by refusals."""

    items: int
    wait_ms: float
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    ticket_id: str
    since_us: int
    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceSnapshot:
    now_us: int
    closed_until_us: int
    factor: float
    waiting: int
    holders: tuple[Holder, ...]


class PacerScripts:
    """`now_us` replaces the server's clock, in tests only."""

    def __init__(self, redis: Redis, limits: Limits, *, now_us: Callable[[], int] | None = None) -> None:
        self._redis = redis
        self._limits = limits
        self.now_us = now_us
        self._used_s: dict[RateScope, float] = {}

    async def reserve(self, pace: Pace, tickets: Sequence[tuple[str, int]]) -> list[float]:
        """How long each ticket (id, items) has to wait, in ms."""
        limits = self._limits
        listed = ",".join(f"{ticket_id}:{items}" for ticket_id, items in tickets)
        found = await self._run(
            _RESERVE, pace, listed, limits.pacing_line, int(limits.pacing_line_keep_s * 1e6)
        )
        return [int(wait_us) / 1000 for wait_us in found.split(b",")]

    async def confirm(self, pace: Pace, session_id: str, asks: Sequence[Ask]) -> list[Verdict]:
        limits = self._limits
        listed = ",".join(f"{ask.ticket_id}:{ask.least}:{ask.most}" for ask in asks)
        factor, *found = await self._run(
            _CONFIRM,
            pace,
            listed,
            session_id,
            pace.concurrency,
            int(limits.pacing_slot_hold_s * 1e6),
            int(limits.pacing_slot_wait_ms * 1000),
            int(limits.session_ttl_s * 1000),
        )
        return [_verdict(text, float(factor)) for text in found]

    async def sent(self, pace: Pace, tickets: Sequence[tuple[str, float]]) -> int:
        """Tickets (id, late_ms) that left later than they were confirmed; returns how many count later now."""
        listed = ",".join(f"{ticket_id}:{int(late_ms * 1000)}" for ticket_id, late_ms in tickets)
        return await self._run(_SENT, pace, listed)

    async def free(self, pace: Pace, ticket_ids: Sequence[str]) -> int:
        """End tickets; returns how many slots that freed."""
        return await self._run(_FREE, pace, ",".join(ticket_ids))

    async def limited(self, pace: Pace, report_id: str, wait_ms: float | None, fallback_ms: float) -> float:
        """A 429; returns for how many ms the scope is closed now."""
        limits = self._limits
        wait_us = "" if wait_ms is None else int(wait_ms * 1000)
        _closed, _factor, still_us = await self._run(
            _LIMITED,
            pace,
            report_id,
            wait_us,
            int(fallback_ms * 1000),
            int(limits.pacing_cut_ms * 1000),
            repr(limits.pacing_floor),
        )
        return int(still_us) / 1000

    async def later(self, pace: Pace, ask_id: str, *, due_ms: float, spacing_ms: float) -> float:
        """How long from now (ms) calls whose ticket is `due_ms` away stay away; one after the other, fleet wide."""
        limits = self._limits
        moments = (due_ms, spacing_ms, limits.hold_ms, limits.later_max_ms)
        return int(await self._run(_LATER, pace, ask_id, *(int(ms * 1000) for ms in moments))) / 1000

    async def succeeded(self, pace: Pace) -> float:
        """A lowered rate recovers a step; returns the factor."""
        limits = self._limits
        return float(
            await self._run(_SUCCEEDED, pace, int(limits.pacing_recover_ms * 1000), repr(limits.pacing_step))
        )

    async def restore(self, pace: Pace, session_id: str, ticket_ids: Sequence[str]) -> int:
        """Put back slots that lost data took, while the grace lasts."""
        return await self._run(_RESTORE, pace, ",".join(ticket_ids), session_id)

    async def snapshot(self, pace: Pace) -> PaceSnapshot:
        found = await self._run(_SNAPSHOT, pace, int(self._limits.pacing_slot_hold_s * 1e6))
        now_us, closed_us, factor, waiting, *held = found
        holders = zip(held[::3], held[1::3], held[2::3], strict=True)
        return PaceSnapshot(
            now_us=int(now_us),
            closed_until_us=int(closed_us),
            factor=float(factor),
            waiting=int(waiting),
            holders=tuple(
                Holder(ticket_id=ticket.decode(), since_us=int(since), session_id=session.decode())
                for ticket, since, session in holders
            ),
        )

    async def _run(self, script: Script, pace: Pace, *arguments: Any) -> Any:
        scope = pace.scope
        names = [*keys.pace(scope.org_id, scope.state_name), keys.EPOCH, keys.GRACE, keys.PACE_LOST]
        meters = ",".join(meter.encoded() for meter in pace.meters)
        keep_s = self._keep_s(pace)
        used_s, known_s = time.monotonic(), self._used_s.get(pace.scope)
        known = known_s is not None and used_s - known_s < keep_s / 2
        answer = await script.run(
            self._redis, names, [self._now(), meters, keep_s, *arguments, "1" if known else "0"]
        )
        if script in _KEEPING:
            self._used_s[pace.scope] = used_s
        return answer

    def _now(self) -> int | str:
        return "" if self.now_us is None else self.now_us()

    def _keep_s(self, pace: Pace) -> int:
        longest_us = max((meter.window_us for meter in pace.meters), default=0)
        return int(max(self._limits.pacing_keep_s, 2 * longest_us / 1e6))


def _verdict(text: bytes, factor: float) -> Verdict:
    number = int(text[1:])
    if text[:1] == b"g":
        return Verdict(items=number, wait_ms=0.0, factor=factor)
    return Verdict(items=0, wait_ms=number / 1000, factor=factor)
