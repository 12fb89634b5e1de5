"""Whether a worker that is alive also works, and whether it should end so that a fresh one does."""

from dataclasses import dataclass
from math import inf

from runtime.policy.limits import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """Seconds since each part of a worker was last seen to work; `inf` = never yet."""

    loop_s: float = inf  # its asyncio loop turned
    session_s: float = inf  # its session was renewed in Postgres
    redis_s: float = inf  # its heartbeat key was written
    reading_s: float = inf  # its consumer read the broker
    draining: bool = False
    disconnected: bool = False  # its consumer lost the broker and has not read it since


def not_ready(vitals: Vitals, limits: Limits) -> list[str]:
    """Why the worker takes no work just now, in plain words; empty = it does."""
    late_s = limits.heartbeat_s + limits.ready_late_s
    reasons = ["it is being stopped and takes nothing new"] if vitals.draining else []
    if vitals.disconnected:
        reasons.append("it lost its connection to the broker")
    for seconds, most_s, what in (
        (vitals.loop_s, limits.ready_late_s, "its loop hasn't turned"),
        (vitals.session_s, late_s, "its session in Postgres was not renewed"),
        (vitals.redis_s, late_s, "its heartbeat in Redis was not written"),
        (vitals.reading_s, limits.ready_late_s, "it doesn't read its queues"),
    ):
        if seconds > most_s:
            reasons.append(f"{what} {'yet' if seconds == inf else f'for {seconds:.0f} s'}")
    return reasons


def consumer_is_lost(vitals: Vitals, limits: Limits) -> bool:
    """Redis answers this process, yet its consumer has read nothing for so long that it won't again."""
    if vitals.draining or vitals.reading_s == inf:
        return False
    return vitals.redis_s <= limits.heartbeat_s + limits.ready_late_s and (
        vitals.reading_s >= limits.consumer_stall_exit_s
    )
