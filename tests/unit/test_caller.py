"""The caller's side of lanes: what it asks, what it shares, what it survives."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from runtime.engine.caller import Caller
from runtime.engine.poster import Poster
from runtime.errors import CallWaitExceededError, ServiceUnreachableError
from runtime.model.call import Answer, AnswerState, Call
from runtime.model.call_options import CallOptions
from runtime.model.receipt import Receipt, ReceiptState
from runtime.policy.limits import Limits
from tests.waiting import wait_until_async as wait_until

LIMITS = Limits(poll_first_ms=20, poll_max_ms=40, repost_after_ms=60, repost_max_ms=120, call_gather_ms=0.5)


def call(key: str, run_id: str = "run") -> Call:
    return Call(
        key=key, org_id="o", run_id=run_id, tool="t", input={"k": key}, idempotency_key=f"i-{key}", inbox="me"
    )


def receipt(key: str, state: ReceiptState = ReceiptState.COMPLETED, **fields: Any) -> Receipt:
    return Receipt(
        key=key, org_id="o", tool="t", run_id="other", state=state, fence=1, output=b'"v"', **fields
    )


class World:
    """Receipts, leases, an inbox and a publisher that remembers its posts."""

    def __init__(self) -> None:
        self.stored: dict[str, Receipt] = {}
        self.leased: set[str] = set()
        self.answers: asyncio.Queue[list[Answer]] = asyncio.Queue()
        self.posts: list[tuple[str, list[str]]] = []
        self.reads: list[int] = []
        self.broken = False
        self.gate = asyncio.Event()
        self.gate.set()

    async def read(self, keys: Sequence[str]) -> dict[str, Receipt]:
        self.reads.append(len(keys))
        if self.broken:
            raise ServiceUnreachableError("no database")
        return {key: self.stored[key] for key in keys if key in self.stored}

    async def alive(self, receipt_keys: Sequence[str]) -> set[str]:
        return self.leased & set(receipt_keys)

    async def pop(self, session_id: str, timeout_s: float) -> list[Answer]:
        if self.broken:
            raise ServiceUnreachableError("no redis")
        return await self.answers.get()

    async def post(self, lane: str, calls: Sequence[Call]) -> None:
        self.posts.append((lane, [made.key for made in calls]))
        await self.gate.wait()

    async def push(self, answers: Mapping[str, Sequence[Answer]]) -> None: ...

    def answer(self, key: str, state: AnswerState = AnswerState.COMPLETED) -> None:
        self.answers.put_nowait([Answer(key=key, state=state, output=b'"v"')])

    def posted(self, key: str) -> Callable[[], bool]:
        return lambda: any(key in keys for _, keys in self.posts)


@asynccontextmanager
async def calling(limits: Limits = LIMITS, **more: Any) -> AsyncIterator[tuple[World, Caller]]:
    world: Any = World()
    caller = Caller(
        session_id="me",
        receipts=world,
        leases=world,
        inbox=world,
        poster=Poster(world, limits),
        limits=limits,
        **more,
    )
    caller.start()
    try:
        yield world, caller
    finally:
        await caller.stop()


def ask(caller: Caller, made: Call) -> "asyncio.Task[Answer]":
    return asyncio.get_running_loop().create_task(caller.call(made, "lane"))


async def test_a_receipt_answers_without_a_post() -> None:
    async with calling() as (world, caller):
        world.stored["a"] = receipt("a")
        answer = await caller.call(call("a"), "lane")
        assert (answer.output, answer.cached, world.posts) == (b'"v"', True, [])
        (usage,) = caller.usage.take()
        assert (usage.cached, usage.followed) == (1, 0)


async def test_calls_of_one_moment_are_read_and_posted_together() -> None:
    async with calling() as (world, caller):
        asked = [ask(caller, call(str(n))) for n in range(150)]
        await wait_until(lambda: len(world.posts) >= 1)
        assert world.reads == [150]
        assert sum(len(keys) for _, keys in world.posts) == 150
        for n in range(150):
            world.answer(str(n))
        assert all(answer.state is AnswerState.COMPLETED for answer in await asyncio.gather(*asked))


async def test_one_publish_a_lane_what_arrives_meanwhile_is_the_next_post() -> None:
    async with calling(replace(LIMITS, repost_after_ms=60_000, repost_max_ms=60_000)) as (world, caller):
        world.gate.clear()
        first = [ask(caller, call("first"))]
        await wait_until(world.posted("first"))
        later = [ask(caller, call(str(n))) for n in range(250)]
        await wait_until(lambda: sum(world.reads) == 251)
        assert len(world.posts) == 1
        world.gate.set()
        await wait_until(lambda: sum(len(keys) for _, keys in world.posts) == 251)
        assert [len(keys) for _, keys in world.posts] == [1, 200, 50]
        for task in first + later:
            task.cancel()


async def test_equal_keys_share_one_call() -> None:
    """B11: exact equals become one item, every row gets the value."""
    async with calling() as (world, caller):
        asked = [ask(caller, call("a")) for _ in range(3)]
        await wait_until(world.posted("a"))
        world.answer("a")
        assert {answer.output for answer in await asyncio.gather(*asked)} == {b'"v"'}
        assert world.posts == [("lane", ["a"])]
        assert sum(usage.followed for usage in caller.usage.take()) == 2


async def test_a_lost_answer_is_found_by_the_poll() -> None:
    async with calling() as (world, caller):
        asked = ask(caller, call("a"))
        await wait_until(world.posted("a"))
        world.stored["a"] = receipt("a")
        answer = await asyncio.wait_for(asked, 5)
        assert (answer.output, answer.cached) == (b'"v"', False)


async def test_a_lost_post_is_posted_again_but_not_while_somebody_leases_it() -> None:
    async with calling() as (world, caller):
        world.leased.add("held")
        asked = [ask(caller, call("lost")), ask(caller, call("held"))]
        await wait_until(lambda: sum("lost" in keys for _, keys in world.posts) >= 2)
        assert sum("held" in keys for _, keys in world.posts) == 1
        for task in asked:
            task.cancel()


async def test_a_returned_call_is_posted_again_at_once() -> None:
    async with calling(replace(LIMITS, repost_after_ms=60_000)) as (world, caller):
        asked = ask(caller, call("a"))
        await wait_until(world.posted("a"))
        world.answer("a", AnswerState.RETURNED)
        await wait_until(lambda: len(world.posts) == 2)
        world.answer("a")
        assert (await asked).state is AnswerState.COMPLETED


async def test_a_large_answer_is_read_from_its_receipt() -> None:
    async with calling() as (world, caller):
        asked = ask(caller, call("a"))
        await wait_until(world.posted("a"))
        world.stored["a"] = receipt("a")
        world.answer("a", AnswerState.STORED)
        assert (await asked).output == b'"v"'


async def test_reading_goes_on_after_stores_come_back() -> None:
    async with calling(replace(LIMITS, inbox_block_s=0.01)) as (world, caller):
        world.broken = True
        asked = ask(caller, call("a"))
        await wait_until(lambda: len(world.reads) >= 2)
        world.broken = False
        world.answer("a")
        assert (await asyncio.wait_for(asked, 5)).state is AnswerState.COMPLETED


async def test_a_cancelled_waiter_is_forgotten() -> None:
    async with calling() as (world, caller):
        asked = ask(caller, call("a"))
        await wait_until(world.posted("a"))
        asked.cancel()
        await wait_until(lambda: not caller._entries)


async def test_a_failure_of_another_run_that_may_be_repaired_is_asked_again() -> None:
    async with calling() as (world, caller):
        world.stored["soft"] = receipt("soft", ReceiptState.FAILED, error={"code": "x"})
        world.stored["hard"] = receipt("hard", ReceiptState.FAILED, error={"code": "x"}, terminal=True)
        hard = await caller.call(call("hard"), "lane")
        assert hard.state is AnswerState.FAILED
        asked = ask(caller, call("soft"))
        await wait_until(world.posted("soft"))
        world.answer("soft")
        assert (await asked).state is AnswerState.COMPLETED


async def test_try_later_answers_all_who_wait_here_and_nothing_is_posted_again() -> None:
    async with calling() as (world, caller):
        asked = [ask(caller, call("a")) for _ in range(3)]
        await wait_until(world.posted("a"))
        world.answers.put_nowait([Answer(key="a", state=AnswerState.TRY_LATER, until_ms=60_000.0)])
        answers = await asyncio.gather(*asked)
        assert {(one.state, one.until_ms) for one in answers} == {(AnswerState.TRY_LATER, 60_000.0)}
        assert (len(world.posts), caller._entries) == (1, {})


async def test_an_author_who_waits_at_most_so_long_hears_that_the_turn_is_later() -> None:
    async with calling() as (world, caller):
        for max_wait_ms, state in ((500_000.0, AnswerState.TRY_LATER), (50_000.0, None)):
            options = CallOptions(max_wait_ms=max_wait_ms)
            asked = asyncio.get_running_loop().create_task(caller.call(call("a"), "lane", options))
            await wait_until(lambda: "a" in caller._entries and caller._entries["a"].posts > 0)
            world.answers.put_nowait([Answer(key="a", state=AnswerState.TRY_LATER, until_ms=60_000.0)])
            if state is None:
                with pytest.raises(CallWaitExceededError, match="max_wait_ms=50000"):
                    await asked
            else:
                assert (await asked).state is state
