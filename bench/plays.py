"""The plays that benchmarks run."""

import asyncio
from typing import Any

from runtime import play


async def value(row: Any, ctx: Any) -> Any:
    """One batched call of the echo tool."""
    found = await ctx.tools.execute(id="value", tool="echo", input={"item": row["item"]})
    return found["value"]


@play("bench_spine")
async def bench_spine(ctx: Any, input: Any) -> Any:
    """One dataset of the file's items, one column, one call a row."""
    rows = await ctx.csv(input["file"])
    done = await ctx.dataset("spine", rows).with_column("value", value).run(key="item")
    return {"rows": done}


async def single_value(row: Any, ctx: Any) -> Any:
    """One scalar call."""
    found = await ctx.tools.execute(id="value", tool="echo_single", input={"item": row["item"]})
    return found["value"]


@play("bench_receipts")
async def bench_receipts(ctx: Any, input: Any) -> Any:
    """One dataset of the file's items, one column, one scalar call a row."""
    rows = await ctx.csv(input["file"])
    done = await ctx.dataset("receipts", rows).with_column("value", single_value).run(key="item")
    return {"rows": done}


@play("bench_wait")
async def bench_wait(ctx: Any, input: Any) -> Any:
    """Is alive, and does nothing, until it is cancelled."""
    await asyncio.sleep(3_600)


def shouted(row: Any, ctx: Any) -> Any:
    """A pure column: no operation of ctx."""
    return row["item"].upper()


@play("bench_pure")
async def bench_pure(ctx: Any, input: Any) -> Any:
    """One dataset of the file's items, one pure column."""
    rows = await ctx.csv(input["file"])
    done = await ctx.dataset("pure", rows).with_column("value", shouted).run(key="item")
    return {"rows": done.rows, "completed": done.completed}
