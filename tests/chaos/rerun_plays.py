"""Plays that are run more than once: one row fails until it is repaired, columns that stay fresh, rows seen before."""

from pathlib import Path
from typing import Any

from runtime import play

POISONED = "d0042.example"


def domains(tag: str, count: int) -> list[dict[str, Any]]:
    return [{"row_id": f"{tag}-{n:04d}", "domain": f"d{n:04d}.example"} for n in range(1, count + 1)]


@play("repairable")
async def repairable(ctx: Any, input: Any) -> Any:
    """One row raises as long as a file is missing; the next column needs what it gives."""
    mended = Path(input["mended"])

    async def looked_up(row: Any, ctx: Any) -> Any:
        if row["domain"] == POISONED and not mended.exists():
            raise ValueError("this row is poisoned")
        found = await ctx.tools.execute(id="looked_up", tool="echo", input={"item": row["row_id"]})
        return found["value"]

    async def again(row: Any, ctx: Any) -> Any:
        found = await ctx.tools.execute(id="again", tool="echo", input={"item": f"2:{row['looked_up'][2:]}"})
        return found["value"]

    done = await (
        ctx.dataset("domains", domains(input["tag"], input["rows"]))
        .with_column("looked_up", looked_up)
        .with_column("again", again)
        .run(key="row_id")
    )
    return {"rows": done.rows, "completed": done.completed, "failed": done.failed}


@play("fresh")
async def fresh(ctx: Any, input: Any) -> Any:
    """Every kind of column; the stored values of two of them do in later runs."""

    def count(row: Any, ctx: Any, *, index: int, previous_cell: Any) -> Any:
        before = 0 if previous_cell is None else previous_cell.value["count"]
        return {"count": before + 1, "index": index}

    async def paid(row: Any, ctx: Any) -> Any:
        return await ctx.tools.execute(id="paid", tool="echo", input={"item": row["row_id"]}, force=True)

    done = await (
        ctx.dataset("Fresh Rows", domains(input["tag"], input["rows"]))
        .with_column("count", count)
        .with_column("kept", count, stale_after_seconds=3_600)
        .with_column("paid", paid, stale_after_seconds=lambda found: 3_600 if found["value"] else 0)
        .with_columns({"source": "tests", "_scratch": lambda row, ctx: row["count"]["count"] * 10})
        .with_column(
            "tenfold", lambda row, ctx: row["_scratch"], run_if=lambda row: row["count"]["index"] != 1
        )
        .with_column("value", lambda row, ctx: row["paid"].data["value"])
        .run(key="row_id")
    )
    return {"rows": done.rows, "completed": done.completed}


@play("only_new")
async def only_new(ctx: Any, input: Any) -> Any:
    """Rows of which no run has heard."""

    async def looked_up(row: Any, ctx: Any) -> Any:
        found = await ctx.tools.execute(id="looked_up", tool="echo", input={"item": row["row_id"]})
        return found["value"]

    done = await (
        ctx.dataset("leads", domains(input["tag"], input["rows"]))
        .with_column("looked_up", looked_up)
        .run(key="row_id", mode="net_new")
    )
    return {"rows": done.rows, "completed": done.completed, "left_out": done.counts["left_out"]}
