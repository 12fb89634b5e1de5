"""What a caller does when something of its own breaks, or when its asker is gone."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from runtime.model.call import AnswerState
from runtime.model.call_options import CallOptions
from tests.unit.test_caller import LIMITS, ask, call, calling
from tests.waiting import wait_until_async as wait_until


async def test_an_error_of_ours_reaches_who_asked_and_the_next_call_goes_on() -> None:
    async with calling() as (world, caller):
        read = world.read

        async def broken(keys: Any) -> Any:
            world.read = read
            raise RuntimeError("a row that can't be read")

        world.read = broken  # type: ignore[method-assign]
        with pytest.raises(RuntimeError, match="can't be read"):
            await ask(caller, call("a"))
        for key in ("b", "a"):
            other = ask(caller, call(key))
            await wait_until(world.posted(key))
            world.answer(key)
            assert (await other).state is AnswerState.COMPLETED


async def test_the_inbox_and_the_poll_outlive_an_error_of_ours() -> None:
    async with calling(replace(LIMITS, inbox_block_s=0.01)) as (world, caller):
        world.answers.put_nowait([None])  # type: ignore[list-item]
        first = ask(caller, call("a"))
        await wait_until(world.posted("a"))
        read = world.read

        async def broken(keys: Any) -> Any:
            world.read = read
            raise RuntimeError("once")

        world.read = broken  # type: ignore[method-assign]
        await wait_until(lambda: len(world.posts) > 1)  # by a poll after the one that broke
        world.answer("a")
        assert (await first).state is AnswerState.COMPLETED


async def test_a_bounded_wait_whose_asker_is_gone_is_not_posted_again() -> None:
    async with calling() as (world, caller):
        asked = asyncio.create_task(caller.call(call("a"), "lane", CallOptions(max_wait_ms=60_000)))
        await wait_until(world.posted("a"))
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await wait_until(lambda: not caller._entries)
        assert len(world.posts) == 1


async def test_a_publish_that_hangs_gathers_each_call_once_however_often_it_is_posted() -> None:
    async with calling() as (world, caller):
        world.gate.clear()
        asked = [ask(caller, call("a"))]
        await wait_until(world.posted("a"))
        asked += [ask(caller, call(key)) for key in ("b", "c")]
        entries = caller._entries
        await wait_until(lambda: entries["a"].posts > 1 and min(e.polls for e in entries.values()) > 2)
        world.gate.set()
        await wait_until(lambda: len(world.posts) > 1)
        assert sorted(world.posts[1][1]) == ["a", "b", "c"]
        for task in asked:
            task.cancel()
