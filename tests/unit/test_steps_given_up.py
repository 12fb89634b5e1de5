"""A step that its author gives up: it goes on, is kept, and its row is quiet once it has ended."""

import asyncio
from typing import Any

from runtime.context.scope import current_scope
from runtime.engine.row_scope import RowScope
from tests.unit.test_programs import Row, col, data
from tests.waiting import wait_until_async as wait_until


async def test_a_row_is_quiet_when_a_step_that_was_given_up_has_ended() -> None:
    go_on, seen = asyncio.Event(), []

    async def slow() -> str:
        await go_on.wait()
        return "kept"

    async def resolver(row: Any, ctx: Any) -> Any:
        scope = current_scope.get()
        assert isinstance(scope, RowScope)
        try:
            async with asyncio.timeout(0.01):
                await ctx.step("slow", slow)
        except TimeoutError:
            seen.append(scope.is_busy)
        go_on.set()
        await wait_until(lambda: not scope.is_busy)
        return "went on"

    row = Row(col("x", resolver))
    assert data(await row.turn())["x"] == "went on"
    assert seen == [True]
    (kept,) = row.stored.by_key.values()
    assert kept.output == b'"kept"'


async def test_a_step_that_ends_its_run_holds_nothing() -> None:
    scopes: list[RowScope] = []

    async def resolver(row: Any, ctx: Any) -> Any:
        scope = current_scope.get()
        assert isinstance(scope, RowScope)
        scopes.append(scope)
        return await ctx.step("x", lambda: 1)

    row = Row(col("x", resolver))
    row.stored.is_away = True
    try:
        await row.turn()
    except Exception as error:
        assert "database" in str(error)
    assert not scopes[0].working
