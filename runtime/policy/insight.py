"""From what is stored of a run to what people want to know of it."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from runtime.model.dataset import DatasetState
from runtime.model.insight import SlowLane, Spending
from runtime.model.run import ENDED_RUNS
from runtime.model.sample import LaneSample, RunSample
from runtime.model.status import RunStatus, ToolUsage


def rate(status: RunStatus, earlier: RunSample | None) -> float | None:
    """Rows that ended a second since `earlier`; of an ended run over its whole time."""
    since, before = status.started_at, 0
    if status.state not in ENDED_RUNS and earlier is not None:
        since, before = earlier.at, earlier.ended
    seconds = seconds_between(since, status.ended_at or status.now)
    return None if not seconds else max(0, rows_ended(status) - before) / seconds


def left(status: RunStatus, rows_per_s: float | None) -> float | None:
    """Seconds until all known rows have ended; None while rows are still being added."""
    if status.state in ENDED_RUNS or not rows_per_s or not status.datasets:
        return None
    if any(dataset.state is DatasetState.SEEDING for dataset in status.datasets):
        return None
    return sum(dataset.open_rows for dataset in status.datasets) / rows_per_s


def rows_ended(status: RunStatus) -> int:
    """Of all datasets."""
    return sum(one.completed + one.failed + one.cancelled for one in status.datasets)


def spending(usage: Sequence[ToolUsage]) -> Spending:
    """Over all tools."""
    return Spending(
        calls=sum(one.items + one.cached + one.followed for one in usage),
        sent=sum(one.items for one in usage),
        requests=sum(one.batches for one in usage),
        cached=sum(one.cached for one in usage),
        followed=sum(one.followed for one in usage),
        credits=sum(one.credits for one in usage),
        credits_saved=sum(
            (one.cached + one.followed) * one.credits / one.items for one in usage if one.items
        ),
    )


def slowest(lanes: Iterable[LaneSample], now: datetime) -> SlowLane | None:
    """The lane with the longest line."""
    found = [_slow(lane, now) for lane in lanes if lane.waiting or lane.closed_until]
    return max(found, key=lambda one: (one.wait_s or 0.0, one.waiting), default=None)


def _slow(lane: LaneSample, now: datetime) -> SlowLane:
    wait_s = lane.waiting / lane.rate_per_s if lane.rate_per_s else None
    if lane.closed_until is not None:
        wait_s = max(0.0, seconds_between(now, lane.closed_until) or 0.0)
    return SlowLane(
        lane=lane.lane, provider=lane.provider, waiting=lane.waiting, reason=lane.reason, wait_s=wait_s
    )


def seconds_between(since: datetime | None, until: datetime) -> float | None:
    """None if it never began."""
    return None if since is None else (until - since).total_seconds()
