"""Posts of a process: runs take turns, one run never fills a lane's queue, and what nobody wants isn't posted."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from runtime.engine.poster import Poster
from runtime.model.call import Call
from runtime.policy.limits import Limits
from runtime.testing_redis import settle
from tests.unit.test_caller import LIMITS as CALLER_LIMITS
from tests.unit.test_caller import ask, call, calling
from tests.waiting import wait_until_async as wait_until

LIMITS = Limits(run_calls_posted=10, post_calls=4)


class Queue:
    """A lane's queue; `gate` holds a publish up."""

    def __init__(self) -> None:
        self.posts: list[list[str]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def post(self, lane: str, calls: Sequence[Call]) -> None:
        self.posts.append([made.key for made in calls])
        await self.gate.wait()

    @property
    def keys(self) -> list[str]:
        return [key for post in self.posts for key in post]


def poster() -> tuple[Queue, Poster]:
    queue: Any = Queue()
    return queue, Poster(queue, LIMITS)


async def test_a_run_has_so_many_calls_out_and_another_one_goes_first() -> None:
    queue, posts = poster()
    for n in range(30):
        posts.add("lane", call(f"l{n}", "large"))
    await settle()
    assert queue.keys == [f"l{n}" for n in range(10)]
    assert posts.holds("lane", "large", "l10") and not posts.holds("lane", "large", "l9")
    posts.add("lane", call("s0", "small"))
    await settle()
    assert queue.posts[-1] == ["s0"], "it doesn't wait behind what the large run holds back"
    for n in range(3):
        posts.done("lane", "large", f"l{n}")
    await settle()
    assert queue.keys[11:] == ["l10", "l11", "l12"]


async def test_runs_take_turns_in_what_waits_for_a_publish() -> None:
    queue, posts = poster()
    queue.gate.clear()
    for n in range(8):
        posts.add("lane", call(f"l{n}", "large"))
    await settle()
    for n in range(2):
        posts.add("lane", call(f"s{n}", "small"))
    queue.gate.set()
    await settle()
    assert queue.posts == [["l0", "l1", "l2", "l3"], ["l4", "s0", "l5", "s1"], ["l6", "l7"]]


async def test_what_nobody_waits_for_any_more_is_not_posted() -> None:
    queue, posts = poster()
    for n in range(12):
        posts.add("lane", call(f"l{n}", "large"))
    await settle()
    posts.done("lane", "large", "l10")
    posts.done("lane", "large", "l0")
    await settle()
    assert queue.keys == [*(f"l{n}" for n in range(10)), "l11"]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.booleans()), max_size=60))
def test_no_order_of_ends_loses_a_call_or_leaks_a_place(steps: list[tuple[str, bool]]) -> None:
    async def play() -> None:
        queue, posts = poster()
        alive: list[tuple[str, str]] = []
        ended: set[str] = set()
        for n, (run, ends) in enumerate(steps):
            posts.add("lane", call(f"{run}{n}", run))
            alive.append((run, f"{run}{n}"))
            await settle(2)
            if ends:
                of, key = alive.pop(0)
                ended.add(key)
                posts.done("lane", of, key)
            for run_id in "ab":
                out = [key for key in queue.keys if key[0] == run_id and key not in ended]
                assert len(out) <= LIMITS.run_calls_posted
        while alive:
            await settle(4)
            of, key = alive.pop(0)
            assert key in queue.keys
            posts.done("lane", of, key)
        assert len(queue.keys) == len(set(queue.keys))
        assert not posts._lines

    asyncio.run(play())


async def test_a_caller_makes_room_with_every_answer_and_with_every_asker_that_leaves() -> None:
    limits = replace(CALLER_LIMITS, run_calls_posted=2, repost_after_ms=60_000, repost_max_ms=60_000)
    async with calling(limits) as (world, caller):
        asked = {key: ask(caller, call(key)) for key in "abcd"}
        await wait_until(world.posted("b"))
        assert [keys for _, keys in world.posts] == [["a", "b"]]
        world.answer("a")
        await wait_until(world.posted("c"))
        asked["b"].cancel()
        await wait_until(world.posted("d"))
        assert sorted(key for _, keys in world.posts for key in keys) == list("abcd"), "each once"
        for task in asked.values():
            task.cancel()
