"""Who blocks the loop is named from another thread, by column or step and line."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from runtime.play import PlayRegistry, play
from runtime.policy.limits import Limits
from runtime.testing.plays import run_play
from workers.blocking import Blocker, blocker_of
from workers.loop import BackgroundLoop
from workers.renewal import RenewalThread

registry = PlayRegistry()
seen: list[Blocker] = []


def block() -> int:
    """Holds the loop until somebody has looked."""
    loop, me = asyncio.get_running_loop(), threading.get_ident()
    watcher = threading.Thread(target=lambda: seen.append(blocker_of(loop, me)))
    watcher.start()
    watcher.join()
    return 1


async def in_a_task(row: Any, ctx: Any) -> Any:
    async def inner() -> int:
        await asyncio.sleep(0)
        return block()

    return sum(await asyncio.gather(inner(), inner()))


async def in_a_step(row: Any, ctx: Any) -> Any:
    return await ctx.step("blocking", block)


async def after_a_wait(row: Any, ctx: Any) -> Any:
    await asyncio.sleep(0)
    return block()


RESOLVERS: dict[str, Callable[..., Any]] = {
    "plain": lambda row, ctx: block(),
    "after_a_wait": after_a_wait,
    "in_a_task": in_a_task,
    "in_a_step": in_a_step,
}


@play("blocks", registry=registry)
async def blocks(ctx: Any, input: Any) -> Any:
    await ctx.dataset("rows", [{"n": 1}]).with_column("slow", RESOLVERS[input["how"]]).run(key="n")


@pytest.mark.parametrize("how", RESOLVERS)
def test_a_column_is_named(how: str) -> None:
    seen.clear()
    assert run_play(blocks, {"how": how}, registry=registry).ok
    assert seen
    name = (
        'ctx.step("blocking")'
        if how == "in_a_step"
        else 'column "slow" of dataset "rows" in play "blocks" (row 0)'
    )
    assert {one.name for one in seen} == {name}
    assert all("in join" in one.line or "threading.py" in one.line for one in seen)


@pytest.fixture
def bridge() -> Iterator[BackgroundLoop]:
    made = BackgroundLoop()
    yield made
    made.stop()
    made.loop.close()


def test_nobodys_play(bridge: BackgroundLoop) -> None:
    held, go_on = threading.Event(), threading.Event()

    async def hold() -> None:
        held.set()
        go_on.wait(5)

    running = bridge.submit(hold())
    held.wait(5)
    blocker = blocker_of(bridge.loop, bridge.thread_id)
    renewal = RenewalThread(
        bridge=bridge, limits=Limits(), renew_session=lambda: True, renew_leases=lambda: None
    )
    renewal._tell(2.5)
    go_on.set()
    running.result(5)
    assert blocker.scope is None
    assert blocker.name == "nobody's play"
    assert blocker_of(bridge.loop, 1) == Blocker()
