"""Plays of the kill tests: two datasets, batched and single calls, and a call of the body's own."""

import os
import signal
from typing import Any

from runtime import play
from runtime.errors import RowFailedError


def rows_of(tag: str, dataset: str, count: int) -> list[dict[str, Any]]:
    """The input of a dataset; every row asks for items of its own."""
    return [{"name": f"{tag}/{dataset}/{n:04d}", "code": code_of(n)} for n in range(count)]


def code_of(n: int) -> str:
    """Two letters, different for the first 676 numbers."""
    return chr(65 + n // 26 % 26) + chr(65 + n % 26)


async def looked_up(row: Any, ctx: Any) -> Any:
    """A batched call."""
    found = await ctx.tools.execute(id="looked_up", tool="echo", input={"item": row["name"]})
    return found["value"]


async def again(row: Any, ctx: Any) -> Any:
    """A batched call that needs the column before it."""
    found = await ctx.tools.execute(id="again", tool="echo", input={"item": f"2:{row['looked_up'][2:]}"})
    return found["value"]


async def country(row: Any, ctx: Any) -> Any:
    """A call of a tool that has no batch operation here."""
    found = await ctx.tools.execute(id="country", tool="country_facts", input={"code": row["code"]})
    return found["found"]


@play("chaos")
async def chaos(ctx: Any, input: Any) -> Any:
    """A call, a dataset, a call that needs it, a dataset."""
    tag, rows = input["tag"], input["rows"]
    head = await ctx.tools.execute(id="head", tool="echo", input={"item": f"{tag}/head"})
    first = await (
        ctx.dataset("first", rows_of(tag, "first", rows))
        .with_column("looked_up", looked_up)
        .with_column("again", again)
        .with_column("country", country)
        .run(key="name", on_row_error="isolate")
    )
    middle = await ctx.tools.execute(
        id="middle", tool="echo", input={"item": f"{tag}/middle/{first.completed}"}
    )
    second = await (
        ctx.dataset("second", rows_of(tag, "second", rows // 2))
        .with_column("looked_up", looked_up)
        .with_column("again", again)
        .run(key="name", on_row_error="isolate")
    )
    return {"head": head, "middle": middle, "first": first.completed, "second": second.completed}


def deadly(row: Any, ctx: Any) -> Any:
    """One row takes its process down, whoever runs it."""
    if row["is_deadly"]:
        os.kill(os.getpid(), signal.SIGKILL)
    return len(row["name"])


@play("poisoned")
async def poisoned(ctx: Any, input: Any) -> Any:
    """A dataset with calls, one of whose rows kills."""
    rows = [
        {**row, "is_deadly": n == input["deadly"]}
        for n, row in enumerate(rows_of(input["tag"], "rows", input["rows"]))
    ]
    done = await (
        ctx.dataset("rows", rows)
        .with_column("looked_up", looked_up)
        .with_column("deadly", deadly)
        .run(key="name", on_row_error="isolate")
    )
    return {"completed": done.completed, "failed": done.failed}


async def slowly(row: Any, ctx: Any) -> Any:
    """A call of a tool with a low limit."""
    found = await ctx.tools.execute(id="slowly", tool="echo_single", input={"item": f"slow:{row['name']}"})
    return found["value"]


@play("slow_lane")
async def slow_lane(ctx: Any, input: Any) -> Any:
    """More calls at once than the provider takes in the time that calls are held; the body's own is the last."""
    done = await (
        ctx.dataset("rows", rows_of(input["tag"], "rows", input["rows"]))
        .with_column("slowly", slowly)
        .run(key="name", on_row_error="isolate")
    )
    return {"completed": done.completed, "failed": done.failed}


@play("capped", max_credits=10)
async def capped(ctx: Any, input: Any) -> Any:
    """A credit a row, and one for the body's own last call."""
    done = await (
        ctx.dataset("rows", rows_of(input["tag"], "rows", input["rows"]))
        .with_column("looked_up", looked_up)
        .run(key="name", on_row_error="isolate")
    )
    last = await ctx.tools.execute(id="last", tool="echo", input={"item": f"{input['tag']}/last"})
    return {"completed": done.completed, "failed": done.failed, "last": last["value"]}


@play("deadly_body")
async def deadly_body(ctx: Any, input: Any) -> Any:
    """A body that takes its process down at the same place each time."""
    await ctx.tools.execute(id="head", tool="echo", input={"item": f"{input['tag']}/head"})
    os.kill(os.getpid(), signal.SIGKILL)


def expected_items(tag: str, rows: int) -> set[str]:
    """Every item that one run pays for, as `ledger_name` names it."""
    names = [row["name"] for row in rows_of(tag, "first", rows) + rows_of(tag, "second", rows // 2)]
    codes = {f"code {code_of(n)}" for n in range(rows)}
    return {f"{tag}/head", f"{tag}/middle/{rows}", *names, *(f"2:{name}" for name in names), *codes}


async def rested(row: Any, ctx: Any) -> Any:
    """A paid call, then half the rows sleep and half wait for an event; both may be long."""
    found = await ctx.tools.execute(id="before", tool="echo", input={"item": row["name"]})
    if row["is_sleeper"]:
        await ctx.sleep(row["sleep_s"])
        return found["value"]
    told = await ctx.wait_for_event("approval", key=row["event"], timeout=600)
    return f"{found['value']}:{told['by']}"


async def later(row: Any, ctx: Any) -> Any:
    """A tool whose answer an event brings, and one that is asked after until it is done."""
    if row["is_sleeper"]:
        started = await ctx.tools.execute(
            id="job", tool="slow_echo", input={"item": f"job:{row['name']}", "seconds": 3}
        )
        return started.data
    answer = await ctx.tools.execute(id="person", tool="ask_person", input={"question": row["event"]})
    return answer["answer"]


@play("waiting_rows")
async def waiting_rows(ctx: Any, input: Any) -> Any:
    """Rows that nobody's slot waits for."""
    rows = [
        {**row, "is_sleeper": n % 2 == 0, "sleep_s": input["sleep_s"], "event": f"go:{input['tag']}"}
        for n, row in enumerate(rows_of(input["tag"], "rows", input["rows"]))
    ]
    done = (
        await ctx.dataset("rows", rows)
        .with_column("rested", rested)
        .with_column("later", later)
        .run(key="name")
    )
    last = await ctx.wait_for_event("last", key=f"last:{input['tag']}", timeout=600)
    asked = await ctx.tools.execute(id="asked", tool="ask_person", input={"question": f"body:{input['tag']}"})
    job = await ctx.tools.execute(
        id="job", tool="slow_echo", input={"item": f"body:{input['tag']}", "seconds": 2}
    )
    return {
        "completed": done.completed,
        "failed": done.failed,
        "last": last,
        "asked": asked["answer"],
        "job": job.data,
    }


async def fragile(row: Any, ctx: Any) -> Any:
    """Fails for one row, after its call was paid."""
    found = await ctx.tools.execute(id="fragile", tool="echo", input={"item": row["name"]})
    if row["is_broken"]:
        raise ValueError(f"broken: {row['name']}")
    return found["value"]


@play("fail_fast")
async def fail_fast(ctx: Any, input: Any) -> Any:
    """Two columns with calls; one row fails in the first, and the body says which."""
    rows = [
        {**row, "is_broken": n == input["broken"]}
        for n, row in enumerate(rows_of(input["tag"], "rows", input["rows"]))
    ]
    try:
        await (
            ctx.dataset("rows", rows)
            .with_column("fragile", fragile)
            .with_column("looked_up", lambda row, ctx: looked_up({"name": f"2:{row['name']}"}, ctx))
            .run(key="name", on_row_error="fail")
        )
    except RowFailedError as error:
        return {"row": error.row_key, "column": error.column, "code": error.error["code"]}
    return None


@play("pure")
async def pure(ctx: Any, input: Any) -> Any:
    """A pure column over numbered rows."""
    rows = ({"n": n, "text": f"{input['tag']}-{n:06d}-{'x' * 40}"} for n in range(input["rows"]))
    done = (
        await ctx.dataset("rows", rows).with_column("length", lambda row, ctx: len(row["text"])).run(key="n")
    )
    return {"completed": done.completed}
