"""How an answer came: made for its caller, joined on its way, or read from a receipt of this or another run."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from runtime.context.tool_result import ToolResult
from runtime.engine.caller import Caller
from runtime.engine.tool_calls import CallContext, ToolCalls, origin_of
from runtime.model.call import Answer, AnswerState
from runtime.model.result_rules import ResultRules
from runtime.model.tool import ToolMetadata
from runtime.model.tool_output import Origin
from tests.lane_stage import Catalog, LaneStage, call
from tests.unit.test_caller import LIMITS, World, calling, receipt
from tests.waiting import wait_until_async as wait_until

DONE = Answer(key="k", state=AnswerState.COMPLETED, output=b"1")


@pytest.mark.parametrize(
    ("answer", "origin"),
    [
        (DONE, Origin.LIVE),
        (replace(DONE, run_id="mine"), Origin.LIVE),
        (replace(DONE, followed=True), Origin.IN_FLIGHT),
        (replace(DONE, run_id="other"), Origin.IN_FLIGHT),
        (replace(DONE, run_id="other", cached=True), Origin.CACHE),
        (replace(DONE, cached=True), Origin.CACHE),
        (replace(DONE, run_id="mine", cached=True, followed=True), Origin.CHECKPOINT),
    ],
)
def test_origins(answer: Answer, origin: Origin) -> None:
    assert origin_of(answer, "mine") is origin


def tool_calls(caller: Caller) -> ToolCalls:
    metadata = ToolMetadata(tool="t", provider="p", results=ResultRules(lists=("people",)))
    return ToolCalls(caller=caller, catalog=Catalog(metadata), lane_of=str, session_id="me", limits=LIMITS)


def ask(calls: ToolCalls, run_id: str) -> "asyncio.Task[tuple[ToolResult, bool]]":
    context = CallContext(org_id="o", run_id=run_id)
    return asyncio.get_running_loop().create_task(calls.execute(context, "t", {"n": 1}))


async def test_a_live_result_and_those_that_join_it_or_read_it_later_are_equal() -> None:
    async with calling() as (world, caller):
        calls = tool_calls(caller)
        live, joined = ask(calls, "run"), ask(calls, "run-2")
        key = await posted_key(world)
        output = b'{"people":[1]}\n{"meta":{"p":1}}'
        world.answers.put_nowait([Answer(key=key, state=AnswerState.COMPLETED, output=output, run_id="run")])
        results = [(await live)[0], (await joined)[0]]
        world.stored[key] = replace(receipt(key), run_id="run", output=output)
        results += [(await ask(calls, "run"))[0], (await ask(calls, "run-3"))[0]]
        assert [found.origin for found in results] == [
            Origin.LIVE,
            Origin.IN_FLIGHT,
            Origin.CHECKPOINT,
            Origin.CACHE,
        ]
        for found in results:
            assert found == results[0]
            assert found.output == output
            assert found.list("people") == [{"value": 1}]


async def posted_key(world: World) -> str:
    await wait_until(lambda: bool(world.posts))
    return world.posts[0][1][0]


async def test_a_lane_says_whose_call_it_was() -> None:
    """Two runs' equal calls meet in one item: both learn which run's it was, over the inbox too."""
    stage = await LaneStage().start()
    posted: list[Any] = [call("i0"), replace(call("i0"), run_id="run-9", inbox="rows-2")]
    accepted = await stage.post(posted)
    await stage.finish(accepted)
    first, second = (await stage.answers("rows-1"), await stage.answers("rows-2"))
    assert {answer.run_id for answer in (*first.values(), *second.values())} == {posted[0].run_id}
    assert [answer.output for answer in (*first.values(), *second.values())] == [b'{"value":"v:i0"}'] * 2
