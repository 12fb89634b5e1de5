"""`Retry-After` in every form that was met (B15)."""

from datetime import UTC, datetime

import pytest

from runtime.policy.retry_after import RetryAfter, retry_after

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
DATE = "Mon, 30 Nov 2026 12:00:00 GMT"
MAX_MS = 900_000


@pytest.mark.parametrize(
    ("header", "wait_ms"),
    [
        (None, None),
        ("", None),
        ("   ", None),
        ("soon", None),
        ("-5", None),
        ("-0", 0),
        ("nan", None),
        ("inf", None),
        ("1e9", None),
        ("0x10", None),
        ("١٢", None),
        ("1, 2", None),
        ("0", 0),
        ("1.5", 1_500),
        ("0.0001", 1),
        (" 3 ", 3_000),
        ("+3", 3_000),
        ("120", 120_000),
        ("900", 900_000),
        ("Mon, 30 Nov 2026 12:00:03 GMT", 3_000),
        ("Mon, 30 Nov 2026 11:59:00 GMT", 0),
        ("Monday, 30-Nov-26 12:00:03 GMT", 3_000),
        ("Mon Nov 30 12:00:03 2026", 3_000),
        ("Mon, 30 Nov 2026 13:00:03 +0100", 3_000),
        ("Mon, 31 Feb 2026 12:00:03 GMT", None),
        ("Mon, 30 Nov 99999 12:00:03 GMT", None),
    ],
)
def test_forms(header: str | None, wait_ms: float | None) -> None:
    asked = retry_after(header, reply_date=DATE, now=NOW, max_ms=MAX_MS)
    assert asked == (None if wait_ms is None else RetryAfter(wait_ms=wait_ms))


@pytest.mark.parametrize("header", ["99999999999", "9" * 40, "901", "Mon, 30 Nov 2076 12:00:03 GMT"])
def test_a_far_wait_is_capped_and_says_so(header: str) -> None:
    assert retry_after(header, reply_date=DATE, now=NOW, max_ms=MAX_MS) == RetryAfter(
        wait_ms=MAX_MS, capped=True
    )


def test_a_two_digit_year_is_the_nearest_one() -> None:
    header = "Sunday, 30-Nov-94 12:00:03 GMT"
    assert retry_after(header, reply_date=DATE, now=NOW, max_ms=MAX_MS) == RetryAfter(wait_ms=0)


@pytest.mark.parametrize("skew_s", [-90, 90, 86_400 * 365])
def test_our_clock_does_not_matter_where_the_reply_has_one(skew_s: int) -> None:
    skewed = datetime.fromtimestamp(NOW.timestamp() + skew_s, tz=UTC)
    asked = retry_after("Mon, 30 Nov 2026 12:00:03 GMT", reply_date=DATE, now=skewed, max_ms=MAX_MS)
    assert asked == RetryAfter(wait_ms=3_000)


@pytest.mark.parametrize("date", [None, "", "garbage"])
def test_without_a_date_our_clock_serves(date: str | None) -> None:
    asked = retry_after("Mon, 30 Nov 2026 12:00:03 GMT", reply_date=date, now=NOW, max_ms=MAX_MS)
    assert asked == RetryAfter(wait_ms=3_000)
