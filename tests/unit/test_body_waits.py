"""A body that sleeps and waits for events: its slot is free meanwhile, and a replay meets what it met."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from runtime.context.waits import event_ask, sleep_ask
from runtime.engine.body_attempt import DriveEnd
from runtime.errors import EventTimedOutError, PlayDefinitionError
from runtime.model.run import RunState
from runtime.policy.limits import DEFAULT_LIMITS
from tests.unit.body_world import RUN, World, bridge, returned_by, run_to_end, runner


def result(world: World) -> Any:
    assert world.state is RunState.COMPLETED, world.error
    return returned_by(world)


async def sleeps(ctx: Any, input: Any) -> Any:
    await ctx.sleep(timedelta(hours=1))
    await ctx.sleep(60)
    return "awake"


async def approved(ctx: Any, input: Any) -> Any:
    return await ctx.wait_for_event("approval", key="approval:1", timeout=3_600)


async def late(ctx: Any, input: Any) -> Any:
    first = await ctx.wait_for_event("a", timeout=5, on_timeout="none")
    try:
        await ctx.wait_for_event("b", timeout=5)
    except EventTimedOutError as error:
        return [first, error.code]


async def raced(ctx: Any, input: Any) -> Any:
    try:
        won = await asyncio.wait_for(ctx.wait_for_event("a"), 60)
    except TimeoutError:
        won = "late"
    await ctx.sleep(600)
    return won


def test_a_sleeping_body_gives_its_slot_up_and_wakes_in_time() -> None:
    world = World()
    with bridge() as on:
        assert runner(world, sleeps, on).drive(RUN) is DriveEnd.WAITING
    assert not world.held
    world.sleep_until_due()
    assert result(run_to_end(sleeps, world)) == "awake"
    assert world.now_s >= 3_660
    assert [entry.op_key for entry in world.entries] == ["sleep:sleep:0", "sleep:sleep:1"]


def test_an_event_ends_a_wait_with_its_payload() -> None:
    world = run_to_end(approved, World(event_s={"approval:1": 1_000.0}))
    assert result(world) == "approval:1"
    assert 1_000 <= world.now_s < 1_100


def test_a_wait_that_times_out_gives_none_or_its_error() -> None:
    assert result(run_to_end(late)) == [None, "event_timed_out"]


@pytest.mark.parametrize(("comes_s", "given"), [(30.0, "a"), (90.0, "late")])
def test_a_race_with_a_timeout_has_the_same_winner_when_it_is_replayed(comes_s: float, given: str) -> None:
    world = run_to_end(raced, World(event_s={"a": comes_s}), crash_at=("body.after_journal", 1))
    assert result(world) == given
    lost = world.boundaries["timer:0" if given == "a" else "event:a:0"]
    assert lost.cancelled


@pytest.mark.parametrize("duration", [-1, float("nan"), float("inf"), "1", None, True, timedelta(days=-1)])
def test_a_bad_duration_is_refused_by_name(duration: Any) -> None:
    with pytest.raises(PlayDefinitionError, match=r"ctx\.sleep: duration"):
        sleep_ask(duration, "sleep", DEFAULT_LIMITS)


def test_bad_arguments_of_an_event_wait_are_refused_by_name() -> None:
    bad: list[tuple[str, Any, Any, Any, Any]] = [
        ("id", "", None, None, "error"),
        ("key", "a", 7, None, "error"),
        ("timeout", "a", None, 1e12, "error"),
        ("on_timeout", "a", None, None, "null"),
    ]
    for field, name, key, timeout, on_timeout in bad:
        with pytest.raises(PlayDefinitionError, match=field):
            event_ask(name, key, timeout, on_timeout, DEFAULT_LIMITS)
