"""Tools whose answer comes later: by an event, or by asking another tool until it is there."""

from dataclasses import dataclass
from typing import Any

PENDING = ("pending", "queued", "running", "in_progress", "processing", "started", "submitted")
FAILED = ("failed", "error", "cancelled", "expired")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRule:
    """The tool asks somebody, and an event brings the answer. `arm_repeats`: arming twice has the effect of once."""

    arm_repeats: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PollRule:
    """The tool starts something; `tool` tells how it stands, under the job's id. Paths lead into a result's data."""

    tool: str
    job_path: str = "job_id"
    input_key: str = "job_id"
    status_path: str = "status"
    result_path: str | None = None  # None = the whole last poll
    interval_ms: float | None = None
    pending: tuple[str, ...] = PENDING
    failed: tuple[str, ...] = FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class EventBoundary:
    """What a tool says of its event wait; `stated` is its own JSON, sent back to it as it came."""

    event_key: str
    timeout_ms: float | None
    finalizes: bool  # it wants to be told when the time is up
    stated: dict[str, Any]


def at_path(value: Any, path: str) -> Any:
    """What lies at a dotted path of objects, else None."""
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
