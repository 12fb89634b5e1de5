"""From samples to lines over time."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import pairwise

from runtime.model.sample import LaneSample, RunHistory, RunSample
from runtime.model.status import RunStatus
from workers.report.curves import Line, Point, Span

LaneName = tuple[str, str]


def rows_over_time(status: RunStatus, history: RunHistory) -> list[Line]:
    """Rows a second between looks."""
    begin = began(status)
    points = [(_since(begin, one.at), one.ended) for one in _with_ends(status, history.samples)]
    return [Line(name="rows/s", points=_rates(points))]


def calls_over_time(status: RunStatus, history: RunHistory) -> list[Line]:
    """Calls a second by what answered them, and requests."""
    begin, samples = began(status), _with_ends(status, history.samples)
    kinds = {"sent": "items", "requests": "batches", "cached": "cached", "followed": "followed"}
    found: list[Line] = []
    for name, field in kinds.items():
        points = [
            (_since(begin, one.at), float(sum(getattr(tool, field) for tool in one.usage))) for one in samples
        ]
        if any(value for _, value in points):
            found.append(Line(name=f"{name}/s", points=_rates(points)))
    return found


def lanes_over_time(
    status: RunStatus, history: RunHistory
) -> Iterator[tuple[str, list[Line], list[Line], list[Span]]]:
    """For each lane: its name, requests a second, its fill, and when it was closed."""
    begin, until_s = began(status), duration_s(status)
    by_lane: defaultdict[LaneName, list[LaneSample]] = defaultdict(list)
    for one in history.lanes:
        by_lane[one.lane, one.provider].append(one)
    for (lane, provider), samples in sorted(by_lane.items()):
        requests = [(_since(begin, one.at), float(one.requests)) for one in samples]
        lines = [Line(name="requests/s", points=_rates(requests))]
        allowed = [(_since(begin, one.at), one.rate_per_s) for one in samples if one.rate_per_s is not None]
        if allowed:
            lines.append(Line(name="allowed", points=tuple(allowed)))
        spans = _closed(samples, begin, until_s)
        name = lane if lane == provider else f"{lane} ({provider})"
        yield name, lines, [Line(name="fill %", points=_fill(samples, begin))], spans


def began(status: RunStatus) -> datetime:
    return status.started_at or status.created_at


def duration_s(status: RunStatus) -> float:
    """From the first body to the end, or to now."""
    return max(0.001, _since(began(status), status.ended_at or status.now))


def _with_ends(status: RunStatus, samples: Sequence[RunSample]) -> list[RunSample]:
    """The samples between an empty first and what is known now."""
    begin, end = began(status), status.ended_at or status.now
    first = RunSample(at=begin, completed=0, failed=0, cancelled=0)
    last = RunSample(
        at=end,
        completed=sum(one.completed for one in status.datasets),
        failed=sum(one.failed for one in status.datasets),
        cancelled=sum(one.cancelled for one in status.datasets),
        usage=status.usage,
    )
    return [first, *(one for one in samples if begin < one.at < end), last]


def _rates(points: Sequence[Point]) -> tuple[Point, ...]:
    rates = [
        (after[0], max(0.0, after[1] - before[1]) / (after[0] - before[0]))
        for before, after in pairwise(points)
        if after[0] > before[0]
    ]
    return ((points[0][0], rates[0][1]), *rates) if rates else ()


def _fill(samples: Sequence[LaneSample], begin: datetime) -> tuple[Point, ...]:
    return tuple(
        (_since(begin, after.at), 100 * (after.items - before.items) / (after.capacity - before.capacity))
        for before, after in pairwise(samples)
        if after.capacity > before.capacity
    )


def _closed(samples: Sequence[LaneSample], begin: datetime, until_s: float) -> list[Span]:
    found: list[Span] = []
    for one in samples:
        if one.closed_until is None:
            continue
        since, until = _since(begin, one.at), min(until_s, _since(begin, one.closed_until))
        if found and since <= found[-1].until_s:
            since, until = found[-1].since_s, max(until, found.pop().until_s)
        found.append(Span(since_s=since, until_s=until, label=f"closed for {until - since:.1f} s"))
    return found


def _since(begin: datetime, at: datetime) -> float:
    return (at - begin).total_seconds()
