"""A body whose call's turn is far away gives its slot up, and makes the call when it is woken."""

import asyncio
from dataclasses import replace
from typing import Any

import orjson

from runtime.engine.body_attempt import DriveEnd
from runtime.model.run import RunState
from tests.unit.body_world import FAST, RUN, World, bridge, run_to_end, runner


async def two_calls(ctx: Any, input: Any) -> Any:
    first, second = await asyncio.gather(
        ctx.tools.execute(id="a", tool="t", input="a"), ctx.tools.execute(id="b", tool="t", input="b")
    )
    return [first.data, second.data]


async def swallows(ctx: Any, input: Any) -> Any:
    try:
        found = await ctx.tools.execute(id="a", tool="t", input="a")
    except Exception:
        return "swallowed"
    return found.data


def test_the_run_is_suspended_and_calls_again_when_woken() -> None:
    world = World(lane_far={"a": [40.0]})
    with bridge() as on:
        drives = runner(world, two_calls, on)
        assert drives.drive(RUN) is DriveEnd.WAITING
        assert (world.held, world.tool_calls) == (False, ["t:b"])
        assert drives.drive(RUN) is DriveEnd.NOT_MINE
        world.sleep_until_due()
        assert world.now_s >= 40
        assert drives.drive(RUN) is DriveEnd.ENDED
    assert orjson.loads(world.result or b"") == {"rows": ["t(a)", "t(b)"]}
    assert world.tool_calls == ["t:b", "t:a"]


def test_a_turn_that_moves_on_again_and_again() -> None:
    ended = run_to_end(swallows, World(lane_far={"a": [40.0, 50.0, 60.0]}))
    assert orjson.loads(ended.result or b"") == {"value": "t(a)"}
    assert ended.attempt == 4


def test_a_body_that_is_busy_meanwhile_asks_again_by_itself() -> None:
    world = World(lane_far={"a": [0.05]}, tool_s={"b": 2.0})
    ended = run_to_end(two_calls, world, limits=replace(FAST, suspend_grace_s=5.0))
    assert (ended.state, ended.attempt) == (RunState.COMPLETED, 1)


def test_a_run_that_crashed_too_often_without_progress_fails() -> None:
    class Dying(World):
        async def claim(self, run_id: str, session_id: str) -> Any:
            claimed = await super().claim(run_id, session_id)
            return claimed and replace(claimed, crashes=FAST.run_crashes)

    ended = run_to_end(two_calls, Dying())
    assert ended.state is RunState.FAILED
    assert ended.error is not None
    assert ended.error["code"] == "worker_died"
    assert ended.tool_calls == []


def test_a_wait_that_ended_before_the_suspension_is_not_slept_over() -> None:
    """A sweep ends the wait and counts the wake just before the body rests: the call is made again, not forgotten."""

    class Swept(World):
        async def rest(
            self, run_id: str, attempt: int, op_key: str, delay_s: float, *, kind: str = "lane"
        ) -> None:
            await super().rest(run_id, attempt, op_key, delay_s, kind=kind)
            self._resolve(op_key)

    ended = run_to_end(swallows, Swept(lane_far={"a": [3_600.0]}))
    assert orjson.loads(ended.result or b"") == {"value": "t(a)"}
