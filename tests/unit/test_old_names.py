"""What older plays call is answered with what to write now."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from runtime.context.play_context import PlayContext
from runtime.engine.row_run import run_row
from runtime.play import Column, define
from runtime.policy.limits import Limits
from tests.unit.body_world import run_to_end
from tests.unit.test_row_run import ROW, Calls, scope


async def by_map(ctx: Any, input: Any) -> Any:
    await ctx.map("a", [{"x": 1}], {"y": 1})


async def by_step(ctx: Any, input: Any) -> Any:
    await ctx.dataset("a", [{"x": 1}]).step("y", 1).run()


async def by_fields(ctx: Any, input: Any) -> Any:
    await ctx.dataset("a", [{"x": 1}], {"y": 1})


async def twice(ctx: Any, input: Any) -> Any:
    await ctx.dataset("My rows", [{"x": 1}]).with_column("y", 1).run()
    await ctx.dataset("my_rows", [{"x": 1}]).with_column("y", 1).run()


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (by_map, "ctx.map() is now ctx.dataset()"),
        (by_step, ".step() is now .with_column()"),
        (by_fields, "columns and options come after"),
        (twice, 'runs dataset "my_rows" twice (both are sheet "my_rows")'),
    ],
)
def test_the_error_says_what_to_write(function: Any, says: str) -> None:
    world = run_to_end(function)
    assert world.error is not None and says in world.error["message"]


async def test_a_dataset_within_a_row_is_told_what_to_do_instead() -> None:
    body = SimpleNamespace(play=define("it", twice), limits=Limits(), datasets={})
    ctx = PlayContext(cast(Any, body))
    column = Column("x", lambda row, ctx: ctx.dataset("inner", [{"a": 1}]))
    row = await run_row(ROW, [column], ctx, scope(Calls()))
    message = json.loads(row.error or b"")["message"]
    assert "ctx.dataset can't be used inside a row" in message
    assert "add its columns to this dataset, or do the row's own work inside one column" in message
