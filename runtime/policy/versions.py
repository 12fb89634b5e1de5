"""What becomes of a run whose play is another one here, or none."""

from enum import StrEnum

from runtime.policy.limits import Limits


class VersionPolicy(StrEnum):
    CONTINUE = "continue"  # same columns, other source: go on, and say so
    REFUSE = "refuse"  # leave it to a worker with the source that the run began with


def retry_in_s(unavailable_s: float, limits: Limits) -> float | None:
    """When to ask for a worker with the version again, longer each time; None: long enough, the run fails."""
    if unavailable_s >= limits.version_wait_s:
        return None
    return min(limits.version_retry_max_s, max(limits.release_delay_s, unavailable_s))
