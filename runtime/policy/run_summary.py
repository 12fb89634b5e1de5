"""What a run's rows in Postgres say of it, as events: for whoever comes late or missed some."""

from datetime import datetime

from runtime.model.dataset import DatasetState
from runtime.model.events import Event, MapCompleted, MapFailed, MapStarted, RunEnded, RunEvent, RunStarted
from runtime.model.run import ENDED_RUNS
from runtime.model.status import DatasetStatus, RunStatus


def summary(status: RunStatus) -> tuple[RunEvent, ...]:
    """The run's milestones in order; the end, if it has ended, is the last."""
    found: list[tuple[datetime, Event]] = []
    if status.started_at is not None:
        found.append((status.started_at, RunStarted(play=status.play, attempt=status.attempt)))
    for dataset in status.datasets:
        found.append((dataset.created_at, MapStarted(dataset=dataset.key, columns=dataset.columns)))
        if dataset.ended_at is not None and dataset.state is not DatasetState.CANCELLED:
            found.append((dataset.ended_at, _map_end(dataset)))
    found.sort(key=lambda item: item[0])
    if status.state in ENDED_RUNS:
        end = RunEnded(state=status.state.value, result=status.result, error=status.error)
        found.append((status.ended_at or status.now, end))
    return tuple(
        RunEvent(run_id=status.run_id, at_ms=int(at.timestamp() * 1000), event=event) for at, event in found
    )


def _map_end(dataset: DatasetStatus) -> Event:
    kind = MapFailed if dataset.state is DatasetState.FAILED else MapCompleted
    return kind(
        dataset=dataset.key,
        rows=dataset.rows,
        completed=dataset.completed,
        failed=dataset.failed,
        cancelled=dataset.cancelled,
    )
