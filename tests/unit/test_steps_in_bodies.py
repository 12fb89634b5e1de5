"""What a body does through `ctx.step`, step programs and child plays: once, kept, the same in every replay."""

import asyncio
import itertools
import json
import random
from typing import Any

import pytest

from runtime.engine.body_attempt import DriveEnd
from runtime.model.run import RunState
from runtime.play import PlayRegistry, define
from tests.unit.body_world import RUN, InjectedCrashError, World, bridge, run_to_end, runner


class Counted:
    """Functions for steps that remember how often they ran and give another value each time."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self._n = itertools.count()

    def plain(self, name: str) -> Any:
        def run() -> Any:
            self.ran.append(name)
            return {"name": name, "n": next(self._n), "luck": random.random()}

        return run

    def slow(self, name: str) -> Any:
        async def run() -> Any:
            await asyncio.sleep(0.002)
            return self.plain(name)()

        return run

    def failing(self, name: str) -> Any:
        def run() -> Any:
            self.ran.append(name)
            raise ValueError(f"no {name}")

        return run


def result(world: World) -> Any:
    assert world.state is RunState.COMPLETED, world.error
    kept = json.loads(world.result or b"null")
    return next(iter(kept.values())) if kept.keys() in ({"value"}, {"rows"}) else kept


def ended_with(function: Any, **more: Any) -> dict[str, Any]:
    world = run_to_end(function, **more)
    assert world.state is RunState.FAILED and world.error is not None
    return world.error


CRASHES = ["body.before_journal", "body.after_journal", "local.before_commit", "local.after_commit"]


@pytest.mark.parametrize("point", CRASHES)
def test_a_step_runs_once_and_its_value_stays_whatever_dies(point: str) -> None:
    counted = Counted()

    async def it(ctx: Any, input: Any) -> Any:
        first = await ctx.step("a", counted.plain("a"))
        both = await asyncio.gather(ctx.step("b", counted.slow("b1")), ctx.step("b", counted.slow("b2")))
        return [first, *both, await ctx.tools.execute(id="t", tool="t", input=first["n"])]

    every = point == "body.after_journal"  # there each attempt gets further
    world = run_to_end(it, crash_at=(point, 1)) if every else _crashed_once(it, point)
    again = json.loads(json.dumps(result(world)))
    world.state, world.held = RunState.QUEUED, False
    assert result(run_to_end(it, world)) == again
    if point != "local.before_commit":  # work in flight at a crash is done again
        assert sorted(counted.ran) == ["a", "b1", "b2"]


def _crashed_once(function: Any, point: str) -> World:
    world = World(faults={point: 1})
    with bridge() as on:
        drives = runner(world, function, on)
        with pytest.raises(InjectedCrashError):
            drives.drive(RUN)
    return run_to_end(function, world)


def test_equal_ids_are_told_apart_by_their_number() -> None:
    async def it(ctx: Any, input: Any) -> Any:
        return [await ctx.step("a", lambda n=n: n) for n in range(3)]

    assert result(run_to_end(it)) == [0, 1, 2]


def test_a_step_that_fails_fails_alike_live_and_replayed_and_is_not_run_again() -> None:
    counted = Counted()

    async def it(ctx: Any, input: Any) -> Any:
        said: Any = None
        try:
            await ctx.step("a", counted.failing("a"))
        except Exception as error:
            said = [type(error).__name__, str(error)]
        await asyncio.sleep(1)
        return said

    world = run_to_end(it, crash_at=("body.after_journal", 1))
    assert result(world) == ["OperationFailedError", 'ctx.step("a") failed: ValueError: no a']
    assert counted.ran == ["a"]


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (lambda: {"a": [1.0, float("nan")]}, "$.a[1]: nan is not a finite number"),
        (lambda: {"a": {1, 2}}, "$.a: set is not a JSON value"),
        (lambda: {"a": asyncio.sleep(0)}, "$.a: a coroutine was returned and never awaited"),
        (lambda: "x" * 5_000_000, "5,000,002 bytes of JSON are more than"),
    ],
)
@pytest.mark.filterwarnings("ignore:coroutine")
def test_what_cannot_be_kept_is_named_with_its_path(fn: Any, said: str) -> None:
    async def it(ctx: Any, input: Any) -> Any:
        await ctx.step("a", fn)

    error = ended_with(it)
    assert 'ctx.step("a")' in error["message"] and said in error["message"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda ctx: ctx.tools.execute(id="t", tool="t", input={}),
            "ctx.tools.execute can't be used inside ctx.step",
        ),
        (lambda ctx: ctx.step("b", lambda: 1), "ctx.step can't be used inside ctx.step"),
        (lambda ctx: ctx.run_play("c", "it", {}), "ctx.run_play can't be used inside ctx.step"),
        (lambda ctx: ctx.csv("x"), "ctx.csv can't be used inside ctx.step"),
    ],
)
def test_a_step_asks_for_nothing_that_is_kept_by_itself(call: Any, said: str) -> None:
    async def it(ctx: Any, input: Any) -> Any:
        await ctx.step("a", lambda: call(ctx))

    assert said in ended_with(it)["message"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda ctx: ctx.step("", lambda: 1), "a ctx.step is named by printable text"),
        (lambda ctx: ctx.step("a", 5), "takes a function without arguments, not int"),
        (lambda ctx: ctx.step("a", lambda: 1, semantic_key=""), "semantic_key is text"),
        (
            lambda ctx: ctx.step("a", lambda: 1, stale_after_seconds=-1),
            "stale_after_seconds is None, or a number",
        ),
        (lambda ctx: ctx.run_play("c", "nowhere", {}), 'this worker has no play "nowhere"'),
        (lambda ctx: ctx.run_play("c", 5, {}), "takes the name of a play or its decorated function"),
        (lambda ctx: ctx.run_play("c", "it", {"a": {1}}), "$.a: the input of"),
        (lambda ctx: ctx.run_steps(5, {}), "takes what steps() or waterfall() gave"),
    ],
)
def test_wrong_arguments_are_named(call: Any, said: str) -> None:
    async def it(ctx: Any, input: Any) -> Any:
        await call(ctx)

    assert said in ended_with(it)["message"]


def test_a_semantic_key_is_served_across_runs_until_refreshed() -> None:
    counted = Counted()

    async def it(ctx: Any, input: Any) -> Any:
        shared = await ctx.step("a", counted.plain("a"), semantic_key="k")
        own = await ctx.step("b", counted.plain("b"))
        return [shared["n"], own["n"]]

    world = run_to_end(it)
    first = result(world)
    other = World(kept=world.kept, redis=world.redis, run_id="run-2")
    second = result(run_to_end(it, other))
    assert second[0] == first[0] and second[1] != first[1]
    options = {"refresh_steps": True}
    third = World(kept=world.kept, redis=world.redis, run_id="run-3", options=options, epoch_ms=2_000)
    assert result(run_to_end(it, third))[0] not in (first[0], second[0])
    assert counted.ran == ["a", "b", "b", "a", "b"]


def test_a_suspended_body_waits_for_its_running_step() -> None:
    counted = Counted()

    async def it(ctx: Any, input: Any) -> Any:
        async def slow() -> str:
            await asyncio.sleep(0.05)
            return counted.plain("a")()["name"]

        return await asyncio.gather(asyncio.sleep(2, "slept"), ctx.step("a", slow))

    world = run_to_end(it)
    assert result(world) == ["slept", "a"] and counted.ran == ["a"]


def test_a_stopping_process_gives_the_run_back_once_its_step_is_kept() -> None:
    counted = Counted()
    stopping: list[bool] = []

    async def it(ctx: Any, input: Any) -> Any:
        async def slow() -> Any:
            stopping.append(True)
            await asyncio.sleep(0.05)
            return counted.plain("a")()

        return (await ctx.step("a", slow))["name"]

    world = World()
    with bridge() as on:
        end = runner(world, it, on, draining=lambda: bool(stopping)).drive(RUN)
    assert (end, counted.ran) == (DriveEnd.RELEASED, ["a"])
    world.held = False
    assert result(run_to_end(it, world)) == "a" and counted.ran == ["a"]


# ---- child plays


def registry(**functions: Any) -> PlayRegistry:
    made = PlayRegistry()
    for name, function in functions.items():
        made.add(define(name, function))
    return made


def run_both(parent: Any, child: Any, world: World | None = None, **more: Any) -> World:
    return run_to_end(parent, world, registry=registry(it=parent, child=child), **more)


async def calls_child(ctx: Any, input: Any) -> Any:
    return [await ctx.run_play("c", "child", {"n": n}) for n in (1, 2, 1)]


@pytest.mark.parametrize("point", ["body.after_journal", "body.before_journal"])
def test_a_child_play_runs_inside_its_caller_and_does_nothing_twice(point: str) -> None:
    counted = Counted()

    async def child(ctx: Any, input: Any) -> Any:
        made = await ctx.step("s", counted.plain(f"s{input['n']}"))
        called = await ctx.tools.execute(id="t", tool="t", input=input["n"])
        ctx.log("in the child")
        return {"step": made["name"], "called": called}

    world = (
        run_both(calls_child, child, crash_at=(point, 1)) if point.endswith("after_journal") else _once(child)
    )
    assert [one["step"] for one in result(world)] == ["s1", "s2", "s1"]
    assert result(world)[0]["called"] == "t(1)"
    assert sorted(world.tool_calls) == ["t:1", "t:2"]
    assert sorted(counted.ran) == ["s1", "s1", "s2"]
    assert [entry.kind for entry in world.entries] == ["child"] * 3
    assert sum(line == "in the child" for line in world.logs.values()) == 3


def _once(child: Any) -> World:
    world = World(faults={"body.before_journal": 2})
    both = registry(it=calls_child, child=child)
    with bridge() as on, pytest.raises(InjectedCrashError):
        runner(world, calls_child, on, registry=both).drive(RUN)
    return run_both(calls_child, child, world)


def test_a_child_whose_call_must_wait_lets_its_run_rest() -> None:
    async def child(ctx: Any, input: Any) -> Any:
        first = await ctx.tools.execute(id="t", tool="t", input="near")
        return [first, await ctx.tools.execute(id="u", tool="t", input="far")]

    async def it(ctx: Any, input: Any) -> Any:
        return await ctx.run_play("c", "child", {})

    world = run_both(it, child, World(lane_far={"far": [60.0, 60.0]}))
    assert result(world) == ["t(near)", "t(far)"] and world.attempt > 1
    assert world.tool_calls == ["t:near", "t:far"]


def test_what_a_child_may_not_do_says_what_to_do_instead() -> None:
    async def rows(ctx: Any, input: Any) -> Any:
        return await ctx.dataset("d", [{"a": 1}]).with_column("x", lambda row, ctx: 1).run()

    async def it(ctx: Any, input: Any) -> Any:
        return await ctx.run_play("c", "child", {})

    error = run_both(it, rows).error or {}
    assert "inside child play" in error["message"] and "ctx.enqueue_play" in error["message"]


def test_a_circle_of_plays_fails_before_any_call() -> None:
    async def child(ctx: Any, input: Any) -> Any:
        return await ctx.run_play("back", "it", {})

    async def it(ctx: Any, input: Any) -> Any:
        return await ctx.run_play("c", "child", {})

    error = run_both(it, child).error or {}
    assert error["code"] == "child_play_cycle" and "it -> child -> it" in error["message"]


def test_what_a_child_raises_is_met_alike_live_and_replayed() -> None:
    async def child(ctx: Any, input: Any) -> Any:
        raise SystemExit("enough")

    async def it(ctx: Any, input: Any) -> Any:
        said: Any = None
        try:
            await ctx.run_play("c", "child", {})
        except Exception as error:
            said = [type(error).__name__, str(error)]
        await asyncio.sleep(1)
        return said

    world = run_both(it, child, crash_at=("body.after_journal", 1))
    said = 'child play "child" (ctx.run_play("c")) failed: SystemExit: enough'
    assert result(world) == ["OperationFailedError", said]


def test_a_child_gives_tool_results_alive() -> None:
    async def child(ctx: Any, input: Any) -> Any:
        return {"found": await ctx.tools.execute(id="t", tool="odd", input="x")}

    async def it(ctx: Any, input: Any) -> Any:
        found = (await ctx.run_play("c", "child", {}))["found"]
        return [found.tool, found["in"]]

    assert result(run_both(it, child, crash_at=("body.after_journal", 1))) == ["odd", "x"]


def test_a_detached_child_run_is_started_once_and_counts_where_it_stands() -> None:
    async def child(ctx: Any, input: Any) -> Any: ...

    async def it(ctx: Any, input: Any) -> Any:
        first = await ctx.enqueue_play("c", "child", {"n": 1})
        other = await ctx.enqueue_play("c", "child", {"n": 2})
        await asyncio.sleep(1)
        return [first.run_id, other.run_id, first.play]

    world = run_both(it, child, crash_at=("body.after_journal", 1))
    one, two, play = result(world)
    assert play == "child" and one != two and one.startswith(f"{RUN}.")
    assert {key: run.input for key, run in world.started.items()} == {one: {"n": 1}, two: {"n": 2}}
    assert world.started[one].options["lineage"]["plays"] == ["it", "child"]


def test_observations_are_nothing_unless_the_run_captures_and_never_fail_it() -> None:
    async def it(ctx: Any, input: Any) -> Any:
        async with ctx.node("score", inputs={"a": 1}) as node:
            node.outputs(b=2)
        try:
            async with ctx.node("bad", inputs=5):
                raise ValueError("inside")
        except ValueError:
            return "done"

    quiet = run_to_end(it)
    assert result(quiet) == "done" and not quiet.logs
    seen = run_to_end(it, World(options={"capture": True}), crash_at=("body.after_journal", 1))
    assert [line for _, line in sorted(seen.logs.items())] == ["score", "score", "bad", "bad"]
