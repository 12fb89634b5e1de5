"""Runs that share a key in one process, and waits that an author bounds."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from runtime.errors import CallWaitExceededError
from runtime.model.call import Accepts, Answer, AnswerState
from runtime.model.call_options import CallOptions
from runtime.model.receipt import ReceiptState
from tests.unit.test_caller import LIMITS, ask, call, calling, receipt
from tests.waiting import wait_until_async as wait_until

STRICT = Accepts(not_before_ms=1_000, failed_not_before_ms=1_000)


def answered(key: str, **fields: Any) -> list[Answer]:
    values: dict[str, Any] = {"state": AnswerState.COMPLETED, "output": b'"v"'} | fields
    return [Answer(key=key, **values)]


async def test_an_old_result_serves_one_run_and_not_the_one_that_refreshes() -> None:
    async with calling() as (world, caller):
        world.stored["a"] = receipt("a")
        easy, strict = ask(caller, call("a")), ask(caller, replace(call("a", "r2"), accepts=STRICT))
        assert (await easy).cached
        await wait_until(world.posted("a"))
        world.answers.put_nowait(answered("a", run_id="r2"))
        assert not (await strict).cached


async def test_a_cached_answer_leaves_whom_it_is_too_old_for_and_they_are_posted() -> None:
    async with calling(replace(LIMITS, repost_after_ms=60_000)) as (world, caller):
        easy = ask(caller, call("a", "r1"))
        await wait_until(world.posted("a"))
        strict = ask(caller, replace(call("a", "r2"), accepts=STRICT))
        await asyncio.sleep(0)
        world.answers.put_nowait(answered("a", run_id="old", cached=True, produced_ms=5))
        assert (await easy).cached
        await wait_until(lambda: len(world.posts) == 2)
        world.answers.put_nowait(answered("a", run_id="r2"))
        assert (await strict).output == b'"v"'


@pytest.mark.parametrize("state", [AnswerState.FAILED, AnswerState.UNKNOWN])
async def test_another_run_s_failure_is_not_ours_unless_it_is_final(state: AnswerState) -> None:
    async with calling(replace(LIMITS, repost_after_ms=60_000)) as (world, caller):
        owner, other = ask(caller, call("a", "r1")), ask(caller, call("a", "r2"))
        await wait_until(world.posted("a"))
        world.answers.put_nowait(answered("a", state=state, run_id="r1"))
        assert (await owner).state is state
        await wait_until(lambda: len(world.posts) == 2)
        assert not other.done()
        world.answers.put_nowait(answered("a", run_id="r2"))
        assert (await other).state is AnswerState.COMPLETED


async def test_a_final_failure_is_everybody_s() -> None:
    async with calling() as (world, caller):
        asked = [ask(caller, call("a", run_id)) for run_id in ("r1", "r2")]
        await wait_until(world.posted("a"))
        world.answers.put_nowait(answered("a", state=AnswerState.FAILED, run_id="r1", terminal=True))
        assert {answer.state for answer in await asyncio.gather(*asked)} == {AnswerState.FAILED}
        assert len(world.posts) == 1


async def test_a_failure_of_a_run_of_another_process_is_posted_again() -> None:
    async with calling(replace(LIMITS, repost_after_ms=60_000)) as (world, caller):
        asked = ask(caller, call("a", "r2"))
        await wait_until(world.posted("a"))
        world.answers.put_nowait(answered("a", state=AnswerState.FAILED, run_id="elsewhere"))
        await wait_until(lambda: len(world.posts) == 2)
        asked.cancel()


async def test_older_versions_are_read_with_the_newest_first() -> None:
    async with calling() as (world, caller):
        made = replace(call("new"), read_keys=("newer", "oldest"))
        world.stored |= {"oldest": receipt("oldest"), "newer": replace(receipt("newer"), output=b'"n"')}
        answer = await caller.call(made, "lane")
        assert (answer.key, answer.output, world.reads) == ("new", b'"n"', [3])
        world.stored["new"] = replace(receipt("new", ReceiptState.FAILED), terminal=False)
        assert (await caller.call(made, "lane")).output == b'"n"', (
            "a failure that may be repaired is passed over"
        )


async def test_max_wait_is_a_hard_end_that_names_the_lane() -> None:
    async with calling() as (world, caller):
        world.leased.add("a")
        with pytest.raises(CallWaitExceededError, match="from lane lane: a lane worker works on it") as error:
            await caller.call(call("a"), "lane", CallOptions(max_wait_ms=30))
        assert error.value.details == {"lane": "lane", "leased": True, "posts": 1}
        await wait_until(lambda: not caller._entries)


async def test_receipt_wait_counts_only_while_nobody_works_on_it() -> None:
    async with calling() as (world, caller):
        world.leased.add("held")
        options = CallOptions(receipt_wait_ms=50)
        held = asyncio.create_task(caller.call(call("held"), "lane", options))
        with pytest.raises(CallWaitExceededError, match="nobody works on it"):
            await caller.call(call("lost"), "lane", options)
        assert not held.done()
        world.leased.clear()
        with pytest.raises(CallWaitExceededError):
            await held


async def test_one_waiter_s_end_leaves_the_others_waiting() -> None:
    async with calling() as (world, caller):
        patient = ask(caller, call("a"))
        with pytest.raises(CallWaitExceededError):
            await caller.call(call("a"), "lane", CallOptions(max_wait_ms=20))
        world.answer("a")
        assert (await patient).state is AnswerState.COMPLETED


async def test_a_silent_lane_is_named_and_its_calls_are_put_off_not_failed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def is_read(lane: str) -> bool:
        return False

    async with calling(replace(LIMITS, receipt_wait_ms=30), lane_is_read=is_read) as (_, caller):
        asked = [ask(caller, call("a")), ask(caller, call("b"))]
        logged = ""

        def said() -> bool:
            nonlocal logged
            logged += capsys.readouterr().out
            return "posts lie in its queue: start a lane worker" in logged

        await wait_until(said)
        assert "is a lane worker running?" in logged and "lane=lane" in logged
        assert (logged + capsys.readouterr().out).count("caller.silence") == 1, "once a minute"
        put_off = await asyncio.gather(*asked)
        assert {one.state for one in put_off} == {AnswerState.TRY_LATER}, (
            "their rows wait outside their slices"
        )
        assert {one.until_ms for one in put_off} == {LIMITS.hold_ms}
