"""Until when a provider's used up quota closes its scope. Pure."""

from datetime import UTC, datetime
from typing import Any

from runtime.policy.limits import Limits


def moment(text: Any) -> datetime | None:
    """An ISO 8601 moment, in UTC where it has no zone; None where there is none that can be read."""
    try:
        found = datetime.fromisoformat(text or "")
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (TypeError, ValueError, OverflowError):
        return None


def moment_text(at: datetime) -> str:
    """As errors show it."""
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def wait_ms(until: datetime | None, replied_at: datetime | None, limits: Limits) -> float:
    """How long a scope stays closed, by the reply's own clock; the default where one of both isn't known."""
    if until is None or replied_at is None:
        return limits.quota_wait_ms
    return min(max(0.0, (until - replied_at).total_seconds() * 1000), limits.later_max_ms)
