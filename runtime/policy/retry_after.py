"""Reads a `Retry-After` header as a bounded wait, whatever its form."""

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_SECONDS = re.compile(r"[+-]?\d{1,40}(?:\.\d{0,40})?", re.ASCII)
_TWO_DIGIT_YEAR = re.compile(r"\d{1,2}-[A-Za-z]{3}-\d{2}\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryAfter:
    """`wait_ms` is never negative nor above the cap; `capped` says that the reply asked for more."""

    wait_ms: float
    capped: bool = False


def retry_after(
    header: str | None, *, reply_date: str | None, now: datetime, max_ms: float
) -> RetryAfter | None:
    """The wait that a reply asks for; None when it asks for none or can't be read (use the fallback).

    An HTTP date is measured against the reply's own `Date`, so a skewed clock of ours changes nothing.
    """
    text = (header or "").strip()
    asked_ms = _seconds_ms(text) if _SECONDS.fullmatch(text) else _date_ms(text, reply_date, now)
    if asked_ms is None:
        return None
    return RetryAfter(wait_ms=min(asked_ms, max_ms), capped=asked_ms > max_ms)


def _seconds_ms(text: str) -> float | None:
    seconds = float(text)
    # A negative wait is no instruction at all, so the fallback applies.
    return math.ceil(seconds * 1000) if seconds >= 0 else None


def _date_ms(text: str, reply_date: str | None, now: datetime) -> float | None:
    due = http_date(text, now=now)
    if due is None:
        return None
    origin = http_date(reply_date or "", now=now) or now
    return max(0.0, (due - origin).total_seconds() * 1000)


def http_date(text: str, *, now: datetime) -> datetime | None:
    """An HTTP date in any of its three forms; a two-digit year is the one nearest to now (RFC 9110)."""
    parsed = written_date(text)
    if parsed is None or not _TWO_DIGIT_YEAR.search(text):
        return parsed
    try:
        return _nearest_century(parsed, now)
    except (ValueError, OverflowError):
        return None


def written_date(text: str) -> datetime | None:
    """A date as mail and HTTP write it, UTC where it has no zone; None where it can't be read."""
    try:
        parsed = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed


def _nearest_century(parsed: datetime, now: datetime) -> datetime:
    year = now.year - now.year % 100 + parsed.year % 100
    if year > now.year + 50:
        year -= 100
    return parsed.replace(year=year)
