"""How a run gets on, from some looks at it: counts, rates, time left, and the lines that say so."""

from collections.abc import Sequence
from dataclasses import dataclass

from runtime.model.dataset import DatasetState
from runtime.model.status import DatasetStatus, RunStatus, ToolUsage


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at a run; `at_s` is the watcher's monotonic clock."""

    at_s: float
    status: RunStatus
    closed: tuple[str, ...] = ()  # lanes that their provider closed


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetProgress:
    """`rows_per_s` and `left_s` are None while nobody can say."""

    key: str
    state: DatasetState
    done: int
    rows: int
    failed: int
    rows_per_s: float | None
    left_s: float | None

    @property
    def detail(self) -> str:
        """`1,200/28,300 rows, 3 failed, 2,310 rows/s, 12 s left`."""
        known = "+" if self.state is DatasetState.SEEDING else ""
        parts = [f"{self.done:,}/{self.rows:,}{known} rows"]
        if self.failed:
            parts.append(f"{self.failed:,} failed")
        if self.rows_per_s is not None:
            parts.append(f"{self.rows_per_s:,.0f} rows/s")
        if self.left_s is not None:
            parts.append(f"{spoken_time(self.left_s)} left")
        return ", ".join(parts)


def datasets_progress(samples: Sequence[Sample]) -> tuple[DatasetProgress, ...]:
    """Every dataset of the newest look; its rate is the mean since the oldest look that knew it."""
    now = samples[-1]
    return tuple(
        _progress(dataset, now.at_s, _first_look(samples, dataset.key)) for dataset in now.status.datasets
    )


def rate_window(samples: Sequence[Sample], now_s: float, window_s: float) -> tuple[Sample, ...]:
    """The samples worth keeping: those of the window and the last one before it."""
    inside = [sample for sample in samples if sample.at_s >= now_s - window_s]
    outside = [sample for sample in samples if sample.at_s < now_s - window_s]
    return (*outside[-1:], *inside)


def usage_line(usage: Sequence[ToolUsage]) -> str:
    """`12,000 calls in 130 batches (92 % full), 4,000 cached`, over all tools; empty if there is none."""
    if not usage:
        return ""
    items, batches = sum(tool.items for tool in usage), sum(tool.batches for tool in usage)
    cached = sum(tool.cached for tool in usage)
    filled = fill(usage)
    full = "" if filled is None else f" ({filled:.0%} full)"
    return f"{items:,} calls in {batches:,} batches{full}, {cached:,} cached"


def fill(usage: Sequence[ToolUsage]) -> float | None:
    """Calls sent per place in their batches; None if no batch was sent."""
    capacity = sum(tool.capacity for tool in usage)
    return sum(tool.items for tool in usage) / capacity if capacity else None


def progress_lines(samples: Sequence[Sample]) -> tuple[str, ...]:
    """The run in plain lines, for a log or a pipe."""
    status = samples[-1].status
    usage = usage_line(status.usage)
    head = ", ".join(
        (f"{status.run_id} {status.state.value}", *((usage,) if usage else ()), *samples[-1].closed)
    )
    return (head, *(f"  {one.key}: {one.detail}" for one in datasets_progress(samples)))


def ending_line(status: RunStatus) -> str:
    """How the run ended, in plain words."""
    rows = sum(dataset.rows for dataset in status.datasets)
    completed = sum(dataset.completed for dataset in status.datasets)
    failed = sum(dataset.failed for dataset in status.datasets)
    text = f"run {status.run_id} {status.state.value}"
    if status.datasets:
        text += f": {completed:,} of {rows:,} rows completed, {failed:,} failed"
    return text


def error_line(status: RunStatus) -> str | None:
    """Why the run failed, without the machine's words; None if it did not."""
    if not status.error:
        return None
    message = str(status.error.get("message") or "no reason was stored")
    code, kind, where = (status.error.get(name) for name in ("code", "type", "where"))
    if code == "operation_failed" and kind:
        message = f"{kind}: {message}"  # the play's own error: its text alone may be one word
    at = f" ({where})" if where else ""
    return f"{message}{at} [{code}]" if code else f"{message}{at}"


def spoken_time(seconds: float) -> str:
    """`7 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _first_look(samples: Sequence[Sample], key: str) -> tuple[float, DatasetStatus]:
    return next(
        (sample.at_s, dataset)
        for sample in samples
        for dataset in sample.status.datasets
        if dataset.key == key
    )


def _progress(now: DatasetStatus, now_s: float, first: tuple[float, DatasetStatus]) -> DatasetProgress:
    done, (first_s, before) = _done(now), first
    rate = max(0, done - _done(before)) / (now_s - first_s) if now_s > first_s else None
    left_s = None
    if rate and now.state is not DatasetState.SEEDING:
        left_s = max(0, now.rows - done) / rate
    return DatasetProgress(
        key=now.key,
        state=now.state,
        done=done,
        rows=now.rows,
        failed=now.failed,
        rows_per_s=rate,
        left_s=left_s,
    )


def _done(dataset: DatasetStatus) -> int:
    return dataset.completed + dataset.failed + dataset.cancelled
