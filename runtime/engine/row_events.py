"""What a write of rows tells: counts per dataset, a sample of its rows, failures, waits and logs. Once a write."""

from runtime.model import json_value
from runtime.model.events import ChildPlaysEnded, Logged, MapProgress, MapSuspended, RowUpdated
from runtime.model.row import FinishedRow, RowState
from runtime.policy.event_sampling import RowSampler
from runtime.policy.limits import Limits
from runtime.ports import EventSink, RowWrite, RowWriteAnswer, SliceRows, no_events

ERROR_CHARS = 500


class RowEvents:
    """Belongs to a process's row writer."""

    def __init__(self, events: EventSink, limits: Limits) -> None:
        self._events = events
        self._limits = limits
        self._samplers: dict[int, RowSampler] = {}

    def written(self, write: RowWrite, answer: RowWriteAnswer, now_ms: float) -> None:
        """These rows have ended, or wait, in slices that were held."""
        if self._events is no_events:
            return
        by_dataset: dict[int, list[SliceRows]] = {}
        for part in write.slices:
            if part.rows and part.id not in answer.lost:
                by_dataset.setdefault(part.id.dataset_id, []).append(part)
        for parts in by_dataset.values():
            self._tell(parts, now_ms)
        for run_id, line in write.logs[: self._limits.event_logs]:
            self._events.emit(
                run_id,
                Logged(scope=line.scope, level=line.level, message=line.message, fields=dict(line.fields)),
            )

    def _tell(self, parts: list[SliceRows], now_ms: float) -> None:
        facts = parts[0].facts
        # `count` compares by identity: a Counter would hash every state.
        states = [row.state for part in parts for row in part.rows]
        waiting = states.count(RowState.WAITING)
        if waiting < len(states):
            progress = MapProgress(
                dataset=facts.key,
                completed=states.count(RowState.COMPLETED),
                failed=states.count(RowState.FAILED),
                cancelled=states.count(RowState.CANCELLED),
            )
            self._events.emit(facts.run_id, progress)
        rows = [row for part in parts for row in part.rows]
        ok, failed = sum(row.children_ok for row in rows), sum(row.children_failed for row in rows)
        if ok or failed:
            self._events.emit(facts.run_id, ChildPlaysEnded(ok=ok, failed=failed))
        if waiting:
            self._events.emit(facts.run_id, MapSuspended(dataset=facts.key, rows=waiting))
        for row in self._sample(parts, now_ms):
            self._events.emit(
                facts.run_id,
                RowUpdated(dataset=facts.key, row_key=row.row_key, state=row.state.value, error=_error(row)),
            )

    def _sample(self, parts: list[SliceRows], now_ms: float) -> list[FinishedRow]:
        sampler = self._sampler(parts[0].id.dataset_id)
        rows = [row for part in parts for row in part.rows if row.state is not RowState.WAITING]
        failed = [row for row in rows if row.state is RowState.FAILED]
        others = rows if not failed else [row for row in rows if row.state is not RowState.FAILED]
        taken = sampler.take(len(others), now_ms, self._limits)
        return [*failed[: self._limits.failures_kept], *(others[n] for n in taken)]

    def _sampler(self, dataset_id: int) -> RowSampler:
        if len(self._samplers) > self._limits.event_row_samplers:
            self._samplers.clear()
        return self._samplers.setdefault(dataset_id, RowSampler())


def _error(row: FinishedRow) -> str | None:
    if row.error is None:
        return None
    error = json_value.loads(row.error)
    return str(error.get("message", ""))[:ERROR_CHARS] if isinstance(error, dict) else None
