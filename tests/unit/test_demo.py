"""The demo's parts that decide something."""

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from examples import demo, demo_tables
from examples.approver import Approver, answer_to, is_as_answered
from examples.demo_plays import DEMOS, has_card
from examples.demo_result import again_line, agreement, result_of
from examples.flower_report import FlowerReport, active_tasks, read_report, workers_by_role
from examples.killing import Killings
from runtime.errors import ServiceUnreachableError
from runtime.model.run import RunState
from runtime.model.status import SheetRow
from tests.unit.statuses import BEGIN, dataset_status, run_status, tool_usage


def row(**data: object) -> SheetRow:
    return SheetRow(row_key="k", data=data, cell_meta={}, run_id="r", write_version=1, updated_at=BEGIN)


def test_the_first_airports_become_text_rows(tmp_path: Path):
    path = tmp_path / "new" / "airports.csv"
    assert demo_tables.write_airports(path, 25) == 25
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 25
    assert tuple(rows[0]) == demo_tables.AIRPORT_COLUMNS
    assert all(row["icao"] and float(row["lat"]) and float(row["lon"]) and row["tz"] for row in rows)


def test_without_a_limit_all_airports_are_written(tmp_path: Path):
    assert demo_tables.write_airports(tmp_path / "all.csv") > 28_000


def test_agreement_counts_only_what_is_true():
    assert agreement([row(agrees=True), row(agrees=False), row(agrees=None), row()]) == 0.25
    assert agreement([]) is None


def test_the_result_names_what_was_sent_and_how_full_the_zone_batches_were():
    status = run_status(
        RunState.COMPLETED,
        datasets=(dataset_status(rows=200, completed=198, failed=2),),
        usage=(
            tool_usage("timezone_at", items=180, batches=2, capacity=200),
            tool_usage("country_facts", items=3, batches=1, capacity=100, cached=197),
        ),
        ended_at=BEGIN + timedelta(seconds=1.5),
    )
    assert result_of(status, 0.97, fill_of="timezone_at") == {
        "status": "completed",
        "rows": 200,
        "failed": 2,
        "calls": 183,
        "batches": 3,
        "fill": 0.9,
        "cached": 197,
        "seconds": 1.5,
        "agree": 0.97,
    }


def test_a_second_run_tells_its_calls():
    status = run_status(RunState.COMPLETED, usage=(tool_usage(items=0, cached=200),), ended_at=BEGIN)
    assert again_line(status) == "second run over the same input: 0 provider calls were made, 0 s"


def test_rows_must_be_a_number_above_zero(capsys: pytest.CaptureFixture[str]):
    assert demo.parse(["--rows", "7"]).rows == 7
    assert (demo.parse([]).rows, demo.parse([]).play) == (None, "airports")
    with pytest.raises(SystemExit):
        demo.parse(["--rows", "0"])


@pytest.mark.parametrize("play", ["leads", "approvals", "parent"])
def test_each_table_has_the_rows_that_were_asked_for_and_each_is_another(play: str, tmp_path: Path):
    path = tmp_path / "rows.csv"
    assert DEMOS[play].write(path, 200) == 200
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len({tuple(row.values()) for row in rows}) == 200
    assert all(all(value for value in row.values()) for row in rows)


def test_leads_come_from_many_countries(tmp_path: Path):
    demo_tables.write_leads(tmp_path / "leads.csv", 300)
    with (tmp_path / "leads.csv").open(encoding="utf-8", newline="") as file:
        assert len({row["Country"] for row in csv.DictReader(file)}) > 30


def approval(number: int, **data: object) -> SheetRow:
    return row(id=f"r{number:05}", **data)


def test_a_request_is_as_answered_only_with_its_word_and_its_order():
    assert [answer_to(n) and answer_to(n)["approved"] for n in range(1, 5)] == [True, True, None, False]  # type: ignore[index]
    said = answer_to(1)
    assert is_as_answered(approval(1, decision=said, outcome="approved", order="v:order r00001"))
    assert not is_as_answered(approval(1, decision=said, outcome="approved", order=None))
    assert not is_as_answered(approval(1, decision=None, outcome="expired", order=None))
    assert is_as_answered(approval(3, decision=None, outcome="expired", order=None))
    assert is_as_answered(approval(4, decision=answer_to(4), outcome="declined", order=None))
    assert not is_as_answered(approval(4, decision=answer_to(4), outcome="approved", order="v:order r00004"))


class Told:
    """A client that only tells events."""

    def __init__(self) -> None:
        self.events: list[tuple[str, object]] = []

    def deliver(self, key: str, payload: object = None) -> None:
        self.events.append((key, payload))


def test_requests_are_answered_once_when_the_run_waits_and_nothing_is_held():
    client, notes, tasks = Told(), list[str](), [2, 0, 0]
    approver = Approver(
        client=client,  # type: ignore[arg-type]
        rows=4,
        flower_url="http://flower",
        say=notes.append,
        active=lambda _url: tasks.pop(0),
    )
    for state in (RunState.QUEUED, RunState.RUNNING, RunState.WAITING):
        approver.look(run_status(state))
    assert (client.events, notes) == ([], [])
    approver.look(run_status(RunState.WAITING))
    approver.look(run_status(RunState.WAITING))
    assert [key for key, _ in client.events] == ["approval:r00001", "approval:r00002", "approval:r00004"]
    assert len(notes) == 1


def test_a_card_is_of_its_own_company():
    assert has_card(row(company="Acme", card={"title": "Acme (Chile)"}))
    assert not has_card(row(company="Acme", card={"title": "Beta (Chile)"}))
    assert not has_card(row(company="Acme"))


def test_workers_are_counted_by_role():
    alive = {"rows-1@h": True, "rows-2@h": True, "lanes@h": True, "plays@h": False}
    assert workers_by_role(alive) == {"control": 0, "plays": 0, "rows": 2, "lanes": 1}


def test_a_report_is_complete_when_every_role_lives_and_posts_were_answered():
    everyone = {"control": 1, "plays": 1, "rows": 1, "lanes": 1}
    assert FlowerReport(workers=everyone, posts_succeeded=3).complete
    assert not FlowerReport(workers=everyone, posts_succeeded=0).complete
    assert not FlowerReport(workers={**everyone, "lanes": 0}, posts_succeeded=3).complete


def test_workers_are_killed_once_each_as_rows_end():
    killed: list[int] = []
    notes: list[str] = []
    kills = Killings(
        total=1_000,
        pids=lambda: {"rows-1": 11, "rows-2": 12, "lanes": 21, "postgres": 1},
        say=notes.append,
        plan=((0.2, "rows"), (0.5, "lanes"), (0.6, "plays")),
        kill=lambda pid, _signal: killed.append(pid),
    )
    for completed in (0, 199, 200, 210, 700, 1_000):
        kills.look(run_status(datasets=(dataset_status(completed=completed),)))
    assert killed == [11, 21]
    assert notes == ["kill -9 rows-1 at 200 of 1,000 rows", "kill -9 lanes at 700 of 1,000 rows"]


@contextmanager
def flower(answers: dict[str, list[str]]) -> Iterator[str]:
    """A server that gives each path's answers in turn; the last one stays."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            left = answers.get(self.path.partition("?")[0])
            body = (left.pop(0) if len(left) > 1 else left[0]).encode() if left else b""
            self.send_response(200 if left else 401)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_report_is_read_until_it_is_complete():
    alive = '{"control@h": true, "plays@h": true, "rows@h": true, "lanes@h": true}'
    with flower({"/api/workers": [alive], "/api/tasks": ["{}", '{"a": {}, "b": {}}']}) as url:
        report = read_report(url)
    assert report.line() == "Flower: workers control 1, plays 1, rows 1, lanes 1; 2 lane posts succeeded"


def test_tasks_that_workers_have_are_counted():
    with flower({"/api/workers": ['{"a": {"active": [{}, {}]}, "b": {"active": []}, "c": {}}']}) as url:
        assert active_tasks(url) == 2


def test_a_flower_that_refuses_is_an_error_that_says_so():
    with flower({}) as url, pytest.raises(ServiceUnreachableError, match="Flower did not answer"):
        read_report(url)
