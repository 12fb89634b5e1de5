"""Mistakes that authors make: what a failed run tells them to write instead."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from runtime import steps
from runtime.play import PlayRegistry, play
from runtime.policy.hints import with_hint
from runtime.testing.plays import run_play

ROWS = [{"name": "a"}]


async def no_await(ctx: Any, input: Any) -> Any:
    return ctx.tools.execute(id="a", tool="t", input={})["x"]


async def by_position(ctx: Any, input: Any) -> Any:
    return await ctx.tools.execute("a", "t", {})


async def fetch_without_name(ctx: Any, input: Any) -> Any:
    return await ctx.fetch("https://a.example")


async def log_by_position(ctx: Any, input: Any) -> Any:
    ctx.log("rows", 3)


async def await_twice(ctx: Any, input: Any) -> Any:
    return await (await ctx.step("a", lambda: 1))


async def into_row(ctx: Any, input: Any) -> Any:
    def resolver(row: Any, ctx: Any) -> None:
        row["x"] = 1

    await ctx.dataset("d", ROWS).with_column("x", resolver).run()


async def no_await_in_row(ctx: Any, input: Any) -> Any:
    await (
        ctx.dataset("d", ROWS).with_column("x", lambda row, ctx: ctx.fetch("a", "https://a.example").ok).run()
    )


async def walk_plainly(ctx: Any, input: Any) -> Any:
    return list(await ctx.dataset("d", ROWS).with_column("x", 1).run())


async def pick(ctx: Any, input: Any) -> Any:
    return (await ctx.dataset("d", ROWS).with_column("x", 1).run())[0]


async def length(ctx: Any, input: Any) -> Any:
    return len(await ctx.dataset("d", ROWS).with_column("x", 1).run())


async def no_step(ctx: Any, input: Any) -> Any:
    await ctx.dataset("d", ROWS).with_column("x", steps()).run()


async def io_of_its_own(ctx: Any, input: Any) -> Any:
    import asyncio

    return await asyncio.to_thread(len, "a")


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize(
    ("function", "says"),
    [
        (no_await, "write `await` before it"),
        (no_await_in_row, "write `await` before it"),
        (by_position, 'ctx.tools.execute(id="...", tool="...", input={...}), each by its name'),
        (fetch_without_name, 'ctx.fetch("a name of your own", "https://...")'),
        (log_by_position, 'ctx.log("text", name=value)'),
        (await_twice, "it has its value already: leave `await` out"),
        (into_row, "a row is only read: return the new value"),
        (walk_plainly, "async for row in handle"),
        (pick, "await handle.at(0)"),
        (length, "handle.count"),
        (no_step, "is a steps() without a step: add one"),
        (io_of_its_own, "do it in ctx.step"),
    ],
)
def test_the_run_says_what_to_write(function: Callable[..., Any], says: str) -> None:
    registry = PlayRegistry()
    play("it", registry=registry)(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        done = run_play("it", registry=registry, tools={"t": {"x": 1}}, fetches={"https://a.example": "a"})
    assert done.error is not None
    assert says in done.error["message"]


def test_other_errors_stand_as_they_are() -> None:
    assert with_hint(ValueError("a coroutine"), "a coroutine") == "a coroutine"
    assert with_hint(TypeError("unhashable"), "unhashable") == "unhashable"
