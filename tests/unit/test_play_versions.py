"""A worker that lacks a run's play, or has another version of it, leaves the run to others for a while."""

from dataclasses import replace
from typing import Any

import pytest

from runtime.engine.body_attempt import DriveEnd
from runtime.engine.recovery import Recovery
from runtime.errors import NonDeterministicPlayError, PlayVersionUnavailableError
from runtime.model.dataset import NewDataset, OpenDataset
from runtime.model.run import RunState
from runtime.policy.limits import DEFAULT_LIMITS
from runtime.policy.versions import VersionPolicy, retry_in_s
from tests.unit.awkward_plays import ROWS, tool
from tests.unit.body_world import FAST, RUN, World, bridge, dataset_facts, registry_of, runner

LONG = FAST.version_wait_s


async def calls(ctx: Any, input: Any) -> Any:
    first = await tool(ctx, "a")
    await ctx.dataset("d", ROWS).with_column("x", lambda row, ctx: first).run(key="name")
    return first


async def calls_otherwise(ctx: Any, input: Any) -> Any:
    first = await tool(ctx, "b")
    await ctx.dataset("d", ROWS).with_column("x", lambda row, ctx: first).run(key="name")
    return first


def drive(world: World, function: Any = calls) -> DriveEnd:
    with bridge() as on:
        return runner(world, function, on).drive(RUN)


def test_retries_come_later_each_time_and_end() -> None:
    waits = [retry_in_s(s, DEFAULT_LIMITS) for s in (0.0, 5.0, 120.0, 599.9, 600.0)]
    assert waits == [1.0, 5.0, 30.0, 30.0, None]


def test_a_run_of_an_unknown_play_is_handed_back_then_fails() -> None:
    world = World(play="another")
    assert drive(world) is DriveEnd.HANDED_BACK
    assert (world.state, world.held) == (RunState.RUNNING, False)
    assert 'no play "another"' in world.logs["version", 1]
    world.unavailable_s = LONG
    assert drive(world) is DriveEnd.ENDED
    assert world.error is not None
    assert (world.state, world.error["code"]) == (RunState.FAILED, "play_version_unavailable")
    assert 'no play "another"' in world.error["message"]


def test_the_same_journal_under_another_source_goes_on_and_says_so() -> None:
    world = World(pinned="an earlier source", dataset_s={"d": 0.1})
    assert drive(world) in (DriveEnd.ENDED, DriveEnd.WAITING)
    assert "another version" in world.logs["version", 1]


def test_a_replay_that_contradicts_another_source_is_handed_back_but_one_of_its_own_fails() -> None:
    world = World(dataset_s={"d": 1_000.0})
    assert drive(world) is DriveEnd.WAITING
    world.wakes += 1
    earlier, world.pinned = world.pinned, "an earlier source"
    assert drive(world, calls_otherwise) is DriveEnd.HANDED_BACK
    world.pinned = earlier
    world.unavailable_s = 0.0
    with bridge() as on:
        drives = runner(world, calls_otherwise, on)
        world.pinned = registry_of(calls_otherwise).find("it").source_hash
        assert drives.drive(RUN) is DriveEnd.ENDED
    assert world.error is not None
    assert world.error["code"] == "non_deterministic_play"


def test_under_refuse_another_source_is_never_begun() -> None:
    world = World(pinned="an earlier source")
    with bridge() as on:
        drives = runner(world, calls, on)
        drives._versions.policy = VersionPolicy.REFUSE
        assert drives.drive(RUN) is DriveEnd.HANDED_BACK
    assert world.tool_calls == []
    assert "PLAYLANE_PLAY_VERSION_POLICY" in world.logs["version", 1]


def test_a_dataset_with_other_columns_is_left_to_the_worker_that_began_it() -> None:
    class Begun(World):
        async def open(self, new: NewDataset, attempt: int, op_key: str) -> OpenDataset:
            raise PlayVersionUnavailableError("begun with the columns old")

    world = Begun()
    assert drive(world) is DriveEnd.HANDED_BACK
    assert [entry.kind for entry in world.entries] == ["tool"]


def recovering(
    world: World, function: Any, on: Any, policy: VersionPolicy = VersionPolicy.CONTINUE
) -> Recovery:
    return Recovery(runs=world, bridge=on, limits=FAST, registry=registry_of(function), version_policy=policy)


def test_rows_of_another_source_run_unless_it_is_refused_or_contradicts_the_journal() -> None:
    world = World(dataset_s={"d": 1_000.0})
    assert drive(world) is DriveEnd.WAITING
    facts = dataset_facts(world, "d")
    other = replace(facts, source_hash="an earlier source")
    with bridge() as on:
        assert recovering(world, calls, on).columns(other).columns[0].name == "x"
        with pytest.raises(PlayVersionUnavailableError, match="refuse"):
            recovering(world, calls, on, VersionPolicy.REFUSE).columns(other)
        with pytest.raises(PlayVersionUnavailableError, match="does not repeat itself"):
            recovering(world, calls_otherwise, on).columns(other)
        own = replace(facts, source_hash=registry_of(calls_otherwise).find("it").source_hash)
        with pytest.raises(NonDeterministicPlayError):
            recovering(world, calls_otherwise, on).columns(own)
