"""What the renewal thread does next, from how long the loop hasn't turned and whether the session is ours."""

from enum import Enum, auto

from runtime.policy.limits import Limits


class Renewal(Enum):
    RENEW = auto()
    RENEW_AND_WARN = auto()  # a resolver blocks the loop: its neighbours keep their claims
    EXIT_STALLED = auto()  # a hung loop must not own its slices for ever
    EXIT_ZOMBIES = auto()  # tasks that swallow their cancellation are kept, so they must not pile up
    EXIT_LOST = auto()  # the session was ended: what it held may belong to others


def decide(*, loop_stalled_s: float, session_ours: bool, zombie_tasks: int, limits: Limits) -> Renewal:
    """One beat of the renewal thread."""
    if not session_ours:
        return Renewal.EXIT_LOST
    if loop_stalled_s >= limits.loop_stall_exit_s:
        return Renewal.EXIT_STALLED
    if zombie_tasks > limits.zombie_tasks:
        return Renewal.EXIT_ZOMBIES
    if loop_stalled_s >= limits.loop_stall_warn_s:
        return Renewal.RENEW_AND_WARN
    return Renewal.RENEW
