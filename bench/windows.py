"""What a provider sees of a limit: sliding windows over the times of its ledger. Pure."""

from collections.abc import Iterator, Sequence


def limit_use(times: Sequence[float], limit_per_s: float) -> float:
    """Share of the limit between the first and the last request."""
    ordered = sorted(times)
    seconds = ordered[-1] - ordered[0] if len(ordered) > 1 else 0.0
    return (len(ordered) - 1) / seconds / limit_per_s if seconds else 0.0


def fullest_window(times: Sequence[float], span_s: float) -> int:
    """Most requests in any window of `span_s`."""
    return max(_windows(times, span_s), default=0)


def windows_over(times: Sequence[float], limit: float, span_s: float) -> int:
    """How many windows, each ending at a request, hold more than the limit."""
    return sum(count > limit for count in _windows(times, span_s))


def _windows(times: Sequence[float], span_s: float) -> Iterator[int]:
    ordered = sorted(times)
    start = 0
    for position, end in enumerate(ordered):
        while ordered[start] <= end - span_s:
            start += 1
        yield position - start + 1
