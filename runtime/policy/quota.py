"""Until when a provider's used up quota closes its scope. Pure."""

from datetime import UTC, datetime
from typing import Any

from runtime.policy.limits import Limits
from runtime.policy.retry_after import written_date

_EPOCH_FROM = 1e9  # a smaller number is no moment of our days, but a year, or a wait
_MILLISECONDS_FROM = 1e11  # as seconds that would be the year 5138


def moment(said: Any) -> datetime | None:
    """A moment in ISO 8601 (UTC where it has no zone), as an HTTP date, or in seconds or milliseconds since 1970.

    None where there is none that can be read.
    """
    if isinstance(said, bool) or not isinstance(said, (str, int, float)):
        return None
    text = str(said).strip()
    found = _since_1970(text)
    return _read(text) if found is None else found


def _since_1970(text: str) -> datetime | None:
    try:
        seconds = float(text)
        seconds = seconds / 1000 if seconds >= _MILLISECONDS_FROM else seconds
        return datetime.fromtimestamp(seconds, tz=UTC) if seconds >= _EPOCH_FROM else None
    except (ValueError, OverflowError, OSError):
        return None


def _read(text: str) -> datetime | None:
    try:
        found = written_date(text) if "," in text else datetime.fromisoformat(text.upper())
        if found is None:
            return None
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
