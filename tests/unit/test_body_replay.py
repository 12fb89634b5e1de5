"""Awkward bodies end the same at a stretch, suspended at every wait, or crashed at every entry."""

import asyncio
import gc
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from runtime.engine import body as body_module
from runtime.engine.body_attempt import DriveEnd
from runtime.errors import ServiceUnreachableError
from runtime.model.run import RunState
from tests.unit import awkward_plays as plays
from tests.unit.body_world import FAST, RUN, World, bridge, returned_by, run_to_end, runner

AWKWARD = pytest.mark.parametrize(
    ("function", "expected"), plays.EXPECTED, ids=[function.__name__ for function, _ in plays.EXPECTED]
)
PATIENT = replace(FAST, suspend_grace_s=5.0)


def world() -> World:
    return World(dataset_s=dict(plays.LONG["dataset_s"]), tool_s=dict(plays.LONG["tool_s"]))


def outcome(ended: World) -> Any:
    assert ended.state is RunState.COMPLETED, ended.error
    return returned_by(ended)


def assert_paid_once(ended: World) -> None:
    assert [key for key, count in Counter(ended.tool_calls).items() if count > 1] == []


@AWKWARD
def test_at_a_stretch(function: Any, expected: Any) -> None:
    ended = run_to_end(function, world(), limits=PATIENT)
    assert outcome(ended) == expected
    assert ended.attempt == 1


@AWKWARD
def test_suspended_at_every_wait(function: Any, expected: Any) -> None:
    ended = run_to_end(function, world())
    assert outcome(ended) == expected
    assert_paid_once(ended)


@pytest.mark.parametrize("point", ["body.after_journal", "body.before_journal"])
@AWKWARD
def test_crash_at_every_entry(function: Any, expected: Any, point: str) -> None:
    """Each attempt dies at a journal write; the next one goes on from what is stored."""
    ended = run_to_end(function, world(), crash_at=(point, 1 if point == "body.after_journal" else 2))
    assert outcome(ended) == expected
    if point == "body.after_journal" and ended.entries:
        assert ended.crashes > 0
        assert_paid_once(ended)


@pytest.mark.parametrize(
    ("function", "type_", "words"),
    [
        (plays.deadlocks, "PlayDeadlockError", ["awkward_plays.py:", "it at"]),
        (plays.does_io, "BodyIoError", ["run_in_executor", "column resolver"]),
        (plays.opens_a_socket, "BodyIoError", ["column resolver"]),
        (plays.spins, "PlaySpinsError", ["20,000 turns"]),
        (plays.exits, "SystemExit", ["3"]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_bodies_that_cannot_go_on_fail_their_run(function: Any, type_: str, words: list[str]) -> None:
    ended = run_to_end(function, world())
    assert ended.state is RunState.FAILED
    assert ended.error is not None
    assert ended.error["type"] == type_
    for word in words:
        assert word in ended.error["message"]


def test_random_names_are_refused_before_anything_is_paid_again() -> None:
    ended = run_to_end(plays.is_random, world())
    assert ended.error is not None
    assert ended.error["code"] == "non_deterministic_play"
    assert ended.error["message"].count("tool:s0.") == 2
    assert len(ended.tool_calls) == 1


def test_other_arguments_are_refused() -> None:
    seen: list[int] = []

    async def it(ctx: Any, input: Any) -> Any:
        seen.append(1)
        await ctx.tools.execute(id="x", tool="t", input=len(seen))
        await asyncio.sleep(1)

    ended = run_to_end(it)
    assert ended.error is not None
    assert "other arguments" in ended.error["message"]
    assert ended.tool_calls == ["t:1"]


def test_a_body_that_returns_before_its_journal_ends_is_refused() -> None:
    seen: list[int] = []

    async def it(ctx: Any, input: Any) -> Any:
        seen.append(1)
        if len(seen) > 1:
            return "early"
        await plays.tool(ctx, "x")
        await asyncio.sleep(1)
        return "late"

    ended = run_to_end(it)
    assert ended.error is not None
    assert ended.error["code"] == "non_deterministic_play"


def test_a_failing_body_names_its_line() -> None:
    async def it(ctx: Any, input: Any) -> Any:
        await plays.tool(ctx, "x")
        raise KeyError("missing")

    ended = run_to_end(it)
    assert ended.error is not None
    assert ended.error["type"] == "KeyError"
    assert ended.error["where"].startswith(__file__)


def test_forgotten_tasks_are_named() -> None:
    ended = run_to_end(plays.forgets_a_task, world())
    assert any("forgets_a_task.<locals>.background" in line for line in ended.logs.values())


def test_a_body_that_outlives_its_cancellation_stays_referenced() -> None:
    """Dropped, it would spin in the garbage collector for ever."""
    before = body_module.zombie_tasks()
    run_to_end(plays.swallowing_loop, world())
    assert body_module.zombie_tasks() > before
    gc.collect()


def test_what_a_body_returns_while_it_is_suspended_is_dropped() -> None:
    async def it(ctx: Any, input: Any) -> Any:
        try:
            await asyncio.sleep(0.5)
        except asyncio.CancelledError:
            return "suspended"
        return "slept"

    assert outcome(run_to_end(it)) == "slept"


def test_logs_are_kept_once() -> None:
    async def it(ctx: Any, input: Any) -> Any:
        ctx.log("one", n=1)
        await asyncio.sleep(0.5)
        ctx.log("two", odd=object(), text="a\x00b")
        await asyncio.sleep(0.5)
        ctx.log("three")

    ended = run_to_end(it)
    assert ended.attempt > 1
    assert list(ended.logs.values()) == ["one", "two", "three"]


def test_a_wait_that_resolves_during_the_suspension_is_not_lost() -> None:
    table = world()
    table.dataset_s["a"] = 10_000.0
    table.resolve_at_suspend = "dataset:a"
    ended = run_to_end(plays.swallows_exception, table)
    assert outcome(ended) == []
    assert ended.suspends_refused == 1
    assert ended.attempt == 1


def test_a_wait_that_the_body_gave_up_ends() -> None:
    ended = run_to_end(plays.timeout_fires, world())
    assert ended.boundaries["dataset:long"].cancelled


def test_a_fatal_outcome_ends_the_run_whatever_the_body_catches() -> None:
    async def it(ctx: Any, input: Any) -> Any:
        try:
            await plays.dataset(ctx, "a")
        except Exception:
            await plays.tool(ctx, "more")
        return "fine"

    table = world()
    table.dataset_outcomes["a"] = {"error": {"code": "all_rows_failed", "message": "all 3 rows failed"}}
    ended = run_to_end(it, table)
    assert ended.state is RunState.FAILED
    assert ended.error is not None
    assert ended.error["code"] == "all_rows_failed"
    assert ended.tool_calls == []


def test_tool_results_are_the_same_to_the_letter_in_every_replay() -> None:
    """Their keys keep their order and their numbers their form, whatever the database does to JSON."""
    seen: list[str] = []

    async def it(ctx: Any, input: Any) -> Any:
        found = await ctx.tools.execute(id="odd", tool="odd", input=2**70)
        seen.append(repr(found.data))
        await asyncio.sleep(0.5)

    run_to_end(it)
    assert len(seen) == 2
    assert set(seen) == {"{'b': 1e+16, 'a': -0.0, 'in': 1180591620717411303424}"}


def test_an_ended_run_drops_its_body_quietly() -> None:
    table = world()

    async def it(ctx: Any, input: Any) -> Any:
        table.state = RunState.CANCELLED
        await asyncio.sleep(10)

    with bridge() as on:
        assert runner(table, it, on).drive(RUN) is DriveEnd.LOST
    assert table.state is RunState.CANCELLED


def test_a_run_that_nobody_may_claim_is_left() -> None:
    table = world()
    table.state = RunState.COMPLETED
    with bridge() as on:
        assert runner(table, plays.queue, on).drive(RUN) is DriveEnd.NOT_MINE


def test_a_stopping_process_gives_the_run_back() -> None:
    table = world()
    table.tool_s["s"] = 1_000.0
    with bridge() as on:
        assert runner(table, plays.task_group, on, draining=lambda: True).drive(RUN) is DriveEnd.RELEASED
    assert not table.held
    table.tool_s.clear()
    assert outcome(run_to_end(plays.task_group, table)) == [3, "t(s)"]


def test_a_run_is_given_back_when_a_store_is_away() -> None:
    table = world()
    table.unreachable.add("poll")
    with bridge() as on, pytest.raises(ServiceUnreachableError):
        runner(table, plays.sleeping_loop, on).drive(RUN)
    assert not table.held
    table.unreachable.clear()
    assert outcome(run_to_end(plays.sleeping_loop, table)) == 4


def test_a_journal_has_a_bound() -> None:
    ended = run_to_end(plays.semaphore, world(), limits=replace(FAST, journal_entries=5))
    assert ended.error is not None
    assert ended.error["code"] == "journal_limit"
    ended = run_to_end(plays.semaphore, world(), limits=replace(FAST, journal_bytes=100))
    assert ended.error is not None
    assert ended.error["code"] == "journal_limit"


@pytest.mark.parametrize(
    ("value", "words"), [({"a": [float("nan")]}, "$.a[0]"), ({1: 2}, "not text"), ("x" * 200, "200 bytes")]
)
def test_a_result_that_cannot_be_kept_fails_the_run(value: Any, words: str) -> None:
    async def it(ctx: Any, input: Any) -> Any:
        return value

    ended = run_to_end(it, limits=replace(FAST, result_bytes=100))
    assert ended.error is not None
    assert words in ended.error["message"] or "202 of the 212 bytes" in ended.error["message"]


def test_handles_are_objects_in_results() -> None:
    async def it(ctx: Any, input: Any) -> Any:
        return {"table": await plays.dataset(ctx, "My Table")}

    assert outcome(run_to_end(it))["table"] == {
        "dataset": "My Table",
        "namespace": "my_table",
        "columns": ["x"],
        "rows": 3,
        "completed": 3,
        "failed": 0,
        "kind": "dataset",
        "count": 3,
    }


def test_ctx_in_a_thread_of_its_own_is_refused() -> None:
    async def it(ctx: Any, input: Any) -> Any:
        coroutine = plays.tool(ctx, "x")
        loop = asyncio.get_running_loop()
        asyncio._set_running_loop(None)  # what a foreign thread or another loop looks like
        try:
            coroutine.send(None)
        finally:
            asyncio._set_running_loop(loop)

    ended = run_to_end(it)
    assert ended.error is not None
    assert "outside its body" in ended.error["message"]


def test_a_dataset_key_is_used_once() -> None:
    async def it(ctx: Any, input: Any) -> Any:
        await plays.dataset(ctx, "a")
        await plays.dataset(ctx, "A")

    ended = run_to_end(it)
    assert ended.error is not None
    assert "twice" in ended.error["message"]
