"""A slice with one row that is slow for as long as a file is missing, and rows that sleep meanwhile."""

import asyncio
from pathlib import Path
from typing import Any

from runtime import play


@play("slow_row")
async def slow_row(ctx: Any, input: Any) -> Any:
    """All rows are of one slice; sleepers call before and after."""
    is_over = Path(input["over"])

    async def rested(row: Any, ctx: Any) -> Any:
        if row["is_slow"]:
            while not is_over.exists():
                await asyncio.sleep(0.05)
            return "slow"
        before = await ctx.tools.execute(id="before", tool="echo", input={"item": row["name"]})
        await ctx.sleep(3)
        after = await ctx.tools.execute(id="after", tool="echo", input={"item": f"2:{row['name']}"})
        return [before["value"], after["value"]]

    rows = [{"name": f"{input['tag']}/{n}", "is_slow": n == 0} for n in range(input["rows"])]
    done = await ctx.dataset("rows", rows).with_column("rested", rested).run(key="name")
    return {"completed": done.completed, "failed": done.failed}
