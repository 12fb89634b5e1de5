"""What a run's counts mean, in lines for people."""

from collections.abc import Iterator
from datetime import UTC, datetime

from runtime.model.insight import RunInsight, SlowLane, Spending
from runtime.model.status import ChildCounts
from runtime.policy.progress import spoken_time

MESSAGE_CHARS = 160


def insight_lines(found: RunInsight) -> Iterator[str]:
    """One line a fact; facts that there are none of are left out."""
    yield from _pace(found)
    yield from _spending(found.spending)
    yield from child_lines(found.children)
    if found.slowest_lane is not None:
        yield f"slowest lane: {_lane(found.slowest_lane)}"
    for failure in found.failures:
        message = failure.message.partition("\n")[0][:MESSAGE_CHARS]
        yield f"failed: {failure.rows:,} x {failure.code} in {failure.dataset}, first {failure.row_key}: {message}"
    for one in found.awaited:
        count = f"{one.count:,} x " if one.count > 1 else ""
        since = f", since {_moment(one.since)}" if one.since else ""
        until = f", until {_moment(one.due_at)}" if one.due_at else ""
        yield f"waits: {one.where}: {count}{one.kind} {one.name}{since}{until}"


def _moment(text: str) -> str:
    """To the second, in universal time."""
    return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _pace(found: RunInsight) -> Iterator[str]:
    parts: list[str] = []
    if found.rows_per_s is not None:
        parts.append(f"{found.rows_per_s:,.1f} rows/s")
    if found.left_s is not None:
        parts.append(f"about {spoken_time(found.left_s)} left")
    if found.deadline_s is not None:
        parts.append(f"active for {found.active_s:,.0f} of {found.deadline_s:,g} s")
    if parts:
        yield f"pace: {', '.join(parts)}"


def _spending(spent: Spending) -> Iterator[str]:
    if not spent.calls:
        return
    yield (
        f"calls: {spent.calls:,} asked for, {spent.sent:,} sent in {spent.requests:,} requests"
        f" ({spent.requests_saved:,} requests saved by batches), {spent.cached:,} cached, {spent.followed:,} followed"
    )
    if spent.credits or spent.credits_saved:
        yield f"credits: {spent.credits:,g} spent, about {spent.credits_saved:,g} saved by receipts"


def child_lines(found: ChildCounts) -> Iterator[str]:
    """One line of what ended inside the run, one of the runs that it started."""
    if found.ok or found.failed:
        yield f"child plays: {found.ok + found.failed:,} ended inside this run, {found.failed:,} of them failed"
    if found.runs:
        yield f"child runs: {found.runs:,} started, {found.runs_ended:,} ended, {found.runs_failed:,} of them failed"


def _lane(slow: SlowLane) -> str:
    name = slow.lane if slow.lane == slow.provider else f"{slow.lane} ({slow.provider})"
    wait = "" if slow.wait_s is None else f", about {spoken_time(slow.wait_s)}"
    return f"{name}: {slow.waiting:,} waiting{wait}, {slow.reason}"
