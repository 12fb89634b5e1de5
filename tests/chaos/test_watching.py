"""Runs as people and services see them: events to the end, cancel, deadline, hand-backs."""

import itertools
import signal

from runtime.client import PlayClient
from runtime.errors import RunNotCompletedError
from runtime.model.events import (
    DatasetChanged,
    MapCompleted,
    MapProgress,
    MapStarted,
    RowUpdated,
    RunEnded,
    RunEvent,
    RunStarted,
    ToolCallSettled,
    ToolCallStarted,
)
from runtime.model.run import RunState
from tests.chaos.runs import StartedRun
from tests.chaos.stack_under_test import StackUnderTest
from workers.report.page import page


def of_kind(events: list[RunEvent], kind: type) -> list:
    return [event.event for event in events if isinstance(event.event, kind)]


def test_a_watcher_sees_it_all_in_order_and_the_end_last(stack: StackUnderTest) -> None:
    run = stack.start(60)
    with stack.client(run.org_id) as client:
        seen = list(client.events(run.run_id))
        status = client.status(run.run_id)
        told = client.insight(status)
        history = client.history(status)
        again = list(client.events(run.run_id))
    (end,) = of_kind(seen, RunEnded)
    assert seen[-1].event is end
    assert (end.state, end.result, end.error) == ("completed", status.result, None)
    assert of_kind(seen, RunStarted)[0].play == "chaos"
    assert [one.dataset for one in of_kind(seen, MapStarted)] == ["first", "second"]
    progress = of_kind(seen, MapProgress)
    assert sum(one.completed for one in progress if one.dataset == "first") == 60
    assert sum(one.completed for one in progress if one.dataset == "second") == 30
    assert 0 < len(of_kind(seen, RowUpdated)) < 90
    completed = of_kind(seen, MapCompleted)
    assert [(one.dataset, one.rows, one.completed) for one in completed] == [
        ("first", 60, 60),
        ("second", 30, 30),
    ]
    states = [(one.dataset, one.state) for one in of_kind(seen, DatasetChanged)]
    assert states == list(itertools.product(["first", "second"], ["seeding", "running", "settled"]))
    sent = sum(one.calls for one in of_kind(seen, ToolCallStarted))
    assert sent == sum(one.completed for one in of_kind(seen, ToolCallSettled))
    assert sent == sum(one.items for one in status.usage) == told.spending.sent
    assert told.spending.requests < told.spending.sent
    assert told.rows_per_s is not None and told.rows_per_s > 0
    assert told.failures == told.awaited == ()
    assert history.samples[-1].completed <= 90
    assert {(one.dataset, one.column, one.state) for one in history.cells} >= {
        ("first", "country", "completed")
    }
    assert again[-1].event == end
    shown = page(status, told, history)
    assert "first.country" in shown and "<polyline" in shown
    _without_redis_data_there_are_the_milestones(stack, run)


def _without_redis_data_there_are_the_milestones(stack: StackUnderTest, run: StartedRun) -> None:
    with stack.redis(2) as state:
        state.delete(f"events:{run.run_id}")
    with stack.client(run.org_id) as client:
        kinds = [event.event.type for event in client.events(run.run_id)]
    assert kinds == ["run.started", *["map.started", "map.completed"] * 2, "run.ended"]


def cancelled_at(stack: StackUnderTest, client: PlayClient, rows: int) -> str:
    run = stack.start(1_000)
    stack.until_rows(run, rows)
    stack.signal("lanes", signal.SIGSTOP)  # what is posted now stays in the queue till after the end
    stack.until_quiet(run, 1.0)
    before = len(stack.ledger(run).entries)
    client.cancel(run.run_id)
    stack.until(lambda: client.status(run.run_id).state is RunState.CANCELLED, "the run cancelled", 10)
    for role in ("lanes", "rows", "plays"):
        stack.until_restarted(role, stack.kill(role))
    with stack.sender() as send:
        send("plays.resume", "plays", run_id=run.run_id)
        send(
            "plays.run", "control", version=1, run_id=run.run_id, play="chaos", input={"tag": "x", "rows": 5}
        )
    stack.until(lambda: all(d.open_rows == 0 for d in client.status(run.run_id).datasets), "no open row", 40)
    stack.until_quiet(run, 2.0)
    assert len(stack.ledger(run).entries) == before
    return run.run_id


def test_a_cancelled_run_stays_so_after_restarts_and_repeated_messages(stack: StackUnderTest) -> None:
    """Finished rows stay, the rest are cancelled, and the provider hears nothing more of the run, also not by posts
    that a frozen lane worker left in the queue."""
    stack.latency_ms(150)
    with stack.client() as client:
        run_id = cancelled_at(stack, client, 100)
        status = client.status(run_id)
        end = list(client.events(run_id))[-1].event
    assert status.state is RunState.CANCELLED
    assert isinstance(end, RunEnded) and end.state == "cancelled"
    (first,) = status.datasets
    assert 100 <= first.completed < first.rows
    assert first.completed + first.cancelled == first.rows
    assert stack.ledger_of(run_id).charged_twice() == []


def test_a_deadline_counts_active_seconds(stack: StackUnderTest) -> None:
    stack.latency_ms(400)
    with stack.client() as client:
        run_id = client.enqueue("chaos", {"tag": "late", "rows": 600}, options={"deadline_s": 3.0})
        try:
            client.result(run_id, 40)
        except RunNotCompletedError as error:
            failure = error.error
        else:
            raise AssertionError("it ended in time")
        assert failure["code"] == "run_deadline"
        status = client.status(run_id)
        assert 3 <= client.insight(status).active_s < 15


def test_a_play_that_no_worker_knows_waits_for_one_that_does(stack: StackUnderTest) -> None:
    with stack.client() as client:
        run_id = client.enqueue("not_deployed_yet", {})
        stack.until(
            lambda: "no play" in str(stack.sql("select message from run_logs where run_id = %s", run_id)),
            "the log says why it waits",
        )
        assert client.status(run_id).state is RunState.RUNNING
        client.cancel(run_id)
        stack.until(lambda: client.status(run_id).state is RunState.CANCELLED, "cancelled")
