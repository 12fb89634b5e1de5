"""What `watch` prints, on a clock of its own."""

import io
import json
from collections.abc import Sequence
from typing import Any

import pytest
from rich.console import Console

from runtime.errors import ServiceUnreachableError
from runtime.model.events import RunEvent
from runtime.model.run import RunState
from runtime.model.status import RunStatus
from runtime.policy.limits import DEFAULT_LIMITS
from runtime.policy.progress import Sample
from tests.unit.statuses import dataset_status, run_status, tool_usage
from workers.cli.terminal import FAILED, OK
from workers.cli.views import BarsView, JsonView, LinesView
from workers.cli.watch import Watcher, follow, view_for


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def pause(self, seconds: float) -> None:
        self.now_s += seconds


class Looks:
    """A run as seen look after look; the last one stays. An error among them is raised."""

    def __init__(self, looks: Sequence[RunStatus | Exception]) -> None:
        self._looks = list(looks)

    def __call__(self, _run_id: str) -> RunStatus:
        look = self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]
        if isinstance(look, Exception):
            raise look
        return look


class Recorder:
    def __init__(self) -> None:
        self.shown: list[Sample] = []
        self.notes: list[str] = []

    def show(self, samples: Sequence[Sample]) -> None:
        self.shown.append(samples[-1])

    def note(self, text: str) -> None:
        self.notes.append(text)

    def event(self, event: RunEvent) -> None: ...

    def end(self, status: RunStatus) -> None: ...

    def close(self) -> None: ...


def looks_of(*completed: int, end: RunState = RunState.COMPLETED) -> list[RunStatus]:
    running = [run_status(datasets=(dataset_status(completed=count),)) for count in completed]
    return [*running, run_status(end, datasets=(dataset_status(completed=1_000),), usage=(tool_usage(),))]


def watch_all(looks: Sequence[RunStatus | Exception], view: Any) -> RunStatus:
    clock, read = Clock(), Looks(looks)
    return Watcher(read, view, clock=clock, pause=clock.pause).to_end("r1", read("r1"))


def test_json_is_one_line_a_change_and_ends_with_the_final_status():
    lines: list[Any] = []
    watch_all(looks_of(0, 0, 0, 500, 500), JsonView(lines.append))
    assert [line["state"] for line in lines] == ["running", "running", "completed"]
    assert [line["datasets"][0]["completed"] for line in lines] == [0, 500, 1_000]
    assert json.loads(json.dumps(lines[-1]))["usage"][0]["tool"] == "timezone_at"


def test_plain_lines_come_at_most_once_a_second():
    lines: list[str] = []
    view = LinesView(lines.append, Console(file=io.StringIO()), DEFAULT_LIMITS)
    watch_all(looks_of(*range(0, 1_000, 20)), view)  # 50 looks, 0.2 s apart
    heads = [line for line in lines if line.startswith("r1")]
    assert 9 <= len(heads) <= 11


def test_bars_show_rows_failures_and_calls():
    screen = io.StringIO()
    view = BarsView(Console(file=screen, force_terminal=True, width=120))
    try:
        view.show([Sample(at_s=0.0, status=looks_of(250)[0])])
        view.show([Sample(at_s=1.0, status=looks_of()[0])])
    finally:
        view.end(run_status(RunState.COMPLETED, datasets=(dataset_status(completed=1_000, failed=0),)))
    text = screen.getvalue()
    assert "1,000/1,000 rows" in text
    assert "90 calls in 1 batches (90% full)" in text
    assert "run r1 completed: 1,000 of 1,000 rows completed, 0 failed" in text


def test_a_short_absence_of_postgres_is_outlived():
    away = ServiceUnreachableError("Postgres is away")
    looks = looks_of(1, 2)
    view = Recorder()
    ended = watch_all([looks[0], away, away, *looks[1:]], view)
    assert ended.state is RunState.COMPLETED
    assert len(view.notes) == 1
    assert "Postgres is away" in view.notes[0]


def test_a_long_absence_ends_the_watch():
    with pytest.raises(ServiceUnreachableError):
        watch_all([looks_of(1)[0], ServiceUnreachableError("Postgres is away")], Recorder())


def test_a_stall_is_told_once_a_minute():
    view = Recorder()
    watch_all(looks_of(*[7] * 700), view)  # 140 s without a change
    assert [note.partition(":")[0] for note in view.notes] == [
        "no progress for 1 min 0 s",
        "no progress for 2 min 0 s",
    ]


@pytest.mark.parametrize(("end", "code"), [("completed", OK), ("failed", FAILED), ("cancelled", FAILED)])
def test_the_exit_code_tells_how_the_run_ended(end: str, code: int, capsys: pytest.CaptureFixture[str]):
    error = {"code": "run_halted", "message": "credits are used up"} if end == "failed" else None
    status = run_status(RunState(end), error=error)
    assert follow(Looks([status]), "r1", as_json=False) == code
    printed = capsys.readouterr().out
    assert f"run r1 {end}" in printed
    assert ("credits are used up" in printed) == (end == "failed")


def test_a_pipe_gets_lines_and_a_terminal_bars():
    assert isinstance(view_for(Console(file=io.StringIO()), as_json=False), LinesView)
    assert isinstance(view_for(Console(file=io.StringIO()), as_json=True), JsonView)
    bars = view_for(Console(file=io.StringIO(), force_terminal=True), as_json=False)
    assert isinstance(bars, BarsView)
    bars.close()
