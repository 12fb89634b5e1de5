"""What a write of rows tells: whole counts, few rows, and next to no time."""

from typing import Any

from runtime.engine.row_events import RowEvents
from runtime.model import json_value
from runtime.model.dataset import DatasetFacts
from runtime.model.events import Event, Logged, MapProgress, MapSuspended, RowUpdated
from runtime.model.row import FinishedRow, RowState
from runtime.model.row_wait import RowWait, WaitKind
from runtime.model.slice import SliceId
from runtime.policy.limits import DEFAULT_LIMITS
from runtime.ports import LogLine, RowWrite, RowWriteAnswer, SliceRows

NOBODY = RowWriteAnswer(done=frozenset(), lost=frozenset(), ended=frozenset())


class Told:
    def __init__(self) -> None:
        self.events: list[Event] = []

    def emit(self, run_id: str, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def row(n: int, state: RowState = RowState.COMPLETED) -> FinishedRow:
    failed = state is RowState.FAILED
    return FinishedRow(
        position=n,
        row_key=f"k{n}",
        state=state,
        data=b"{}",
        cell_meta=b"{}",
        error=json_value.dumps({"message": f"no {n}"}) if failed else None,
        wait=RowWait(kind=WaitKind.SLEEP) if state is RowState.WAITING else None,
    )


def write(*rows: FinishedRow, number: int = 0, logs: int = 0) -> RowWrite:
    facts = DatasetFacts(
        dataset_id=1,
        run_id="r1",
        org_id="o",
        play="p",
        key="d",
        namespace="d",
        columns=("c",),
        source_hash="h",
        on_row_error="isolate",
        options={},
        write_version=1,
    )
    part = SliceRows(
        id=SliceId(dataset_id=1, page=0, slice=number), fence=1, facts=facts, rows=rows, final=False
    )
    line = LogLine(scope="s", n=0, level="info", message="m", fields={})
    return RowWrite(session_id="s", slices=(part,), logs=(("r1", line),) * logs)


def test_counts_are_whole_and_completed_rows_are_sampled() -> None:
    told = Told()
    events = RowEvents(told, DEFAULT_LIMITS)
    for n in range(20):
        events.written(write(*(row(n * 100 + k) for k in range(100))), NOBODY, now_ms=n)
    assert sum(one.completed for one in told.of(MapProgress)) == 2_000
    assert len(told.of(MapProgress)) == 20
    assert 20 <= len(told.of(RowUpdated)) <= 22
    events.written(write(row(5_000)), NOBODY, now_ms=300)
    assert told.events[-1] == RowUpdated(dataset="d", row_key="k5000", state="completed")


def test_failures_come_first_and_within_a_bound() -> None:
    told = Told()
    rows = [row(n, RowState.FAILED if n % 2 else RowState.COMPLETED) for n in range(200)]
    RowEvents(told, DEFAULT_LIMITS).written(write(*rows, logs=500), NOBODY, now_ms=0)
    updates = told.of(RowUpdated)
    assert [one.error for one in updates[:2]] == ["no 1", "no 3"]
    assert sum(one.state == "failed" for one in updates) == DEFAULT_LIMITS.failures_kept
    assert len(told.of(Logged)) == DEFAULT_LIMITS.event_logs
    assert told.of(MapProgress) == [MapProgress(dataset="d", completed=100, failed=100)]


def test_waiting_rows_are_suspended_and_lost_slices_say_nothing() -> None:
    told = Told()
    events = RowEvents(told, DEFAULT_LIMITS)
    events.written(write(row(1, RowState.WAITING), row(2, RowState.WAITING)), NOBODY, now_ms=0)
    assert told.events == [MapSuspended(dataset="d", rows=2)]
    lost = RowWriteAnswer(
        done=frozenset(), lost=frozenset({SliceId(dataset_id=1, page=0, slice=7)}), ended=frozenset()
    )
    events.written(write(row(3), number=7), lost, now_ms=0)
    assert len(told.events) == 1
