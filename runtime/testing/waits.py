"""Durable waits and events in memory."""

from collections.abc import Iterator, Sequence
from typing import Any

from runtime.errors import SliceLostError
from runtime.model import json_value
from runtime.model.boundary import (
    ENDED_BOUNDARIES,
    Awaited,
    BodyAt,
    BoundaryAt,
    BoundaryState,
    Delivered,
    Event,
    KnownBoundary,
)
from runtime.model.dataset import OPEN_DATASETS
from runtime.model.row_wait import NewBoundary, WaitKind
from runtime.model.run import ENDED_RUNS, RunState
from runtime.model.slice import SliceState
from runtime.testing.state import (
    MemoryBoundary,
    MemoryDataset,
    MemoryEvent,
    MemoryRow,
    MemoryRun,
    MemoryState,
)

Boundaries = dict[str, MemoryBoundary]


class MemoryWaits:
    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def arm_event(self, at: BodyAt, wait: NewBoundary) -> None:
        run = self._state.held(at.run_id, at.attempt)
        boundaries = self._state.boundaries.setdefault(at.run_id, {})
        if at.key not in boundaries:
            boundaries[at.key] = made(self._state, wait)
            self._meet(run, boundaries, boundaries[at.key])
            run.wakes += boundaries[at.key].state is BoundaryState.RESOLVED

    async def row_boundaries(
        self, dataset_id: int, positions: Sequence[int]
    ) -> dict[tuple[int, str], KnownBoundary]:
        rows = self._state.datasets[dataset_id].rows
        found: dict[tuple[int, str], KnownBoundary] = {}
        for position in positions:
            for key, one in rows[position].boundaries.items():
                self._state.end_if_due(one)
                found[position, key] = self._known(one)
        return found

    async def find(self, at: BoundaryAt) -> KnownBoundary | None:
        one = self._boundaries(at).get(at.key)
        if one is None:
            return None
        if self._state.end_if_due(one) and isinstance(at, BodyAt):
            self._state.runs[at.run_id].wakes += 1
        return self._known(one)

    async def prepare(self, at: BoundaryAt, event_key: str, prepared: dict[str, Any]) -> KnownBoundary:
        boundaries = self._held(at)
        if at.key not in boundaries:
            boundaries[at.key] = MemoryBoundary(
                kind="event",
                state=BoundaryState.ARMING,
                event_key=event_key,
                prepared=prepared,
                holder=at.holder,
            )
        return self._known(boundaries[at.key])

    async def adopt(self, at: BoundaryAt, from_holder: int) -> bool:
        one = self._held(at)[at.key]
        if one.state is BoundaryState.ARMING and one.holder == from_holder:
            one.holder = at.holder
        return one.state is BoundaryState.ARMING and one.holder == at.holder

    async def armed(
        self, at: BoundaryAt, wait: NewBoundary, prepared: dict[str, Any] | None = None
    ) -> KnownBoundary:
        boundaries = self._held(at)
        one = boundaries[at.key]
        if one.state is BoundaryState.ARMING and one.holder == at.holder:
            fresh = made(self._state, wait)
            fresh.prepared, fresh.holder = prepared or one.prepared, one.holder
            boundaries[at.key] = one = fresh
            self._meet(self._run_of(at), boundaries, one)
        return self._known(one)

    async def close(self, at: BoundaryAt, outcome: dict[str, Any]) -> KnownBoundary:
        one = self._held(at)[at.key]
        self._state.end_if_due(one)
        if one.outcome is None and one.state not in (BoundaryState.RESOLVED, BoundaryState.CANCELLED):
            timed_out = one.state is BoundaryState.TIMED_OUT
            one.state = BoundaryState.TIMED_OUT if timed_out else BoundaryState.CANCELLED
            one.outcome = _stored(outcome)
        return self._known(one)

    async def store_event(self, event: Event) -> bool:
        key = (event.org_id, event.event_id)
        if key in self._state.events:
            return False
        self._state.events[key] = MemoryEvent(
            event=Event(
                org_id=event.org_id, event_id=event.event_id, key=event.key, payload=_stored(event.payload)
            ),
            at_s=self._state.clock(),
        )
        return True

    async def deliver(self, event: Event) -> Delivered:
        await self.store_event(event)
        stored = self._state.events[event.org_id, event.event_id]
        if stored.is_delivered or stored.event.key != event.key:
            return Delivered()
        stored.is_delivered = True
        return self._end(stored)

    async def undelivered(self) -> list[Event]:
        late_s = self._state.clock() - self._state.limits.sweep_s
        return [
            one.event for one in self._state.events.values() if not one.is_delivered and one.at_s < late_s
        ]

    async def prune(self) -> int:
        before_s = self._state.clock() - self._state.limits.event_keep_s
        old = [key for key, one in self._state.events.items() if one.at_s < before_s and one.is_delivered]
        for key in old:
            del self._state.events[key]
        return len(old)

    async def awaited(self, run_id: str) -> list[Awaited]:
        run = self._state.runs.get(run_id)
        if run is None or run.state in ENDED_RUNS:
            return []
        found = [
            Awaited(where="body", kind=one.kind, name=one.event_key or key, count=1, due_at=None)
            for key, one in self._state.boundaries.get(run_id, {}).items()
            if one.state not in ENDED_BOUNDARIES
        ]
        for dataset in self._datasets(run_id):
            waits = [row.wait for row in dataset.rows.values() if row.wait is not None]
            for kind, detail in sorted({(wait.kind, wait.detail) for wait in waits}):
                count = sum((wait.kind, wait.detail) == (kind, detail) for wait in waits)
                found.append(
                    Awaited(where=dataset.new.key, kind=kind.value, name=detail, count=count, due_at=None)
                )
        return found

    def _end(self, stored: MemoryEvent) -> Delivered:
        bodies, rows, run_ids = 0, 0, list[str]()
        for run_id, run in self._state.runs.items():
            if not self._may_meet(run, stored):
                continue
            if self._end_one(self._state.boundaries.get(run_id, {}), stored):
                run.wakes += 1
                bodies += 1
                run_ids += [run_id] if run.state is RunState.WAITING else []
            rows += sum(self._end_row(row, stored) for row in self._rows(run_id))
        return Delivered(bodies=bodies, rows=rows, run_ids=tuple(run_ids))

    def _end_row(self, row: MemoryRow, stored: MemoryEvent) -> bool:
        ended = self._end_one(row.boundaries, stored)
        if ended and row.wait is not None:
            row.due_s = self._state.clock()
        return ended

    def _end_one(self, boundaries: Boundaries, stored: MemoryEvent) -> bool:
        event_id = stored.event.event_id
        if any(one.event_id == event_id for one in boundaries.values()):
            return False
        for one in boundaries.values():
            is_due = one.due_s is not None and one.due_s <= self._state.clock()
            if one.state is BoundaryState.ARMED and one.event_key == stored.event.key and not is_due:
                one.state, one.event_id = BoundaryState.RESOLVED, event_id
                one.outcome = {"ok": stored.event.payload}
                return True
        return False

    def _meet(self, run: MemoryRun, boundaries: Boundaries, one: MemoryBoundary) -> None:
        meet_stored(self._state, run, boundaries, one)

    def _may_meet(self, run: MemoryRun, stored: MemoryEvent) -> bool:
        mine = run.new.org_id == stored.event.org_id and run.epoch_ms <= stored.at_s * 1000
        return mine and run.state not in ENDED_RUNS

    def _rows(self, run_id: str) -> Iterator[MemoryRow]:
        for dataset in self._datasets(run_id):
            yield from dataset.rows.values()

    def _datasets(self, run_id: str) -> list[MemoryDataset]:
        return [
            one
            for one in self._state.datasets.values()
            if one.new.run_id == run_id and one.state in OPEN_DATASETS
        ]

    def _run_of(self, at: BoundaryAt) -> MemoryRun:
        run_id = at.run_id if isinstance(at, BodyAt) else self._state.datasets[at.dataset_id].new.run_id
        return self._state.runs[run_id]

    def _boundaries(self, at: BoundaryAt) -> Boundaries:
        if isinstance(at, BodyAt):
            return self._state.boundaries.setdefault(at.run_id, {})
        return self._state.datasets[at.dataset_id].rows[at.position].boundaries

    def _held(self, at: BoundaryAt) -> Boundaries:
        if isinstance(at, BodyAt):
            self._state.held(at.run_id, at.attempt)
        else:
            one = self._state.datasets[at.dataset_id].slices.get((at.page, at.slice))
            if one is None or one.fence != at.fence or one.state is not SliceState.OPEN:
                raise SliceLostError(f"slice {at.dataset_id}/{at.page}/{at.slice} has a newer holder")
        return self._boundaries(at)

    def _known(self, one: MemoryBoundary) -> KnownBoundary:
        return KnownBoundary(
            state=one.state,
            kind=one.kind,
            due_ms=None if one.due_s is None else (one.due_s - self._state.clock()) * 1000,
            outcome=one.outcome,
            event_key=one.event_key,
            prepared=one.prepared,
            holder=one.holder,
        )


def made(state: MemoryState, wait: NewBoundary) -> MemoryBoundary:
    """An armed boundary."""
    outcome = wait.timeout_outcome
    return MemoryBoundary(
        kind=wait.kind.value,
        due_s=state.clock() + wait.due_ms / 1000,
        event_key=wait.event_key,
        timeout_outcome=None if outcome is None else _stored(outcome),
    )


def meet_stored(state: MemoryState, run: MemoryRun, boundaries: Boundaries, one: MemoryBoundary) -> None:
    """An event wait that is armed now is ended by the oldest stored event that its body or row hasn't seen."""
    seen = {other.event_id for other in boundaries.values()}
    for stored in state.events.values():
        event = stored.event
        is_wanted = (event.org_id, event.key) == (run.new.org_id, one.event_key)
        if is_wanted and event.event_id not in seen and run.epoch_ms <= stored.at_s * 1000:
            one.state, one.event_id = BoundaryState.RESOLVED, event.event_id
            one.outcome = {"ok": event.payload}
            return


def arm_row(state: MemoryState, dataset: MemoryDataset, row: MemoryRow) -> None:
    """Arm what a row that was just let wait waits for; it is due when the first of it ends."""
    if row.wait is None or not row.wait.boundaries:
        return
    run = state.runs[dataset.new.run_id]
    for wait in row.wait.boundaries:
        if wait.key not in row.boundaries:
            row.boundaries[wait.key] = made(state, wait)
            if wait.kind is WaitKind.EVENT:
                meet_stored(state, run, row.boundaries, row.boundaries[wait.key])
    dues = [row.due_s]
    for wait in row.wait.boundaries:
        one = row.boundaries[wait.key]
        dues.append(state.clock() if one.state in ENDED_BOUNDARIES else one.due_s)
    row.due_s = min((due for due in dues if due is not None), default=None)


def _stored(value: Any) -> Any:
    return json_value.loads(json_value.dumps(value))
