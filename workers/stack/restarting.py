"""Whether a process that died is started again: a pure decision."""

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.policy.limits import DEFAULT_LIMITS, Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartAfter:
    delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAll:
    reason: str


def decide_restart(
    name: str, deaths: Sequence[float], now: float, *, limits: Limits = DEFAULT_LIMITS
) -> RestartAfter | StopAll:
    """`deaths`: when it died, the latest included. Backs off, and gives up at the limit within the window."""
    recent = sum(1 for died in deaths if now - died < limits.restart_window_s)
    if recent >= limits.restart_deaths:
        return StopAll(
            reason=f"{name} died {recent} times within {limits.restart_window_s:.0f} s and is not started "
            "again: everything stops; mend what its last lines say and start again"
        )
    return RestartAfter(delay_s=min(limits.restart_first_s * 2 ** max(recent - 1, 0), limits.restart_max_s))
