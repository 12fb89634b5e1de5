"""Many rows in one process that share a client: one blocks, one leaves a task running, one forgets an await."""

import asyncio
import time
from typing import Any

import httpx

from runtime import play

BLOCKING, LEAVING, FORGETTING = 7, 9, 11
_shared: list[httpx.AsyncClient] = []


def shared_client() -> httpx.AsyncClient:
    """One client for all rows, made by the first."""
    if not _shared:
        _shared.append(httpx.AsyncClient(trust_env=False, limits=httpx.Limits(max_keepalive_connections=0)))
    return _shared[0]


async def work(row: Any, ctx: Any) -> Any:
    own = await shared_client().get(row["url"])
    fetched = await ctx.fetch("echo", row["url"], params={"n": row["n"]})
    found = await ctx.tools.execute(id="tool", tool="echo", input={"item": row["name"]})
    if row["n"] == BLOCKING:
        time.sleep(3.5)
    if row["n"] == LEAVING:
        asyncio.get_running_loop().create_task(forgotten())
        await asyncio.sleep(0)
    if row["n"] == FORGETTING:
        return {"later": forgotten()}
    return [own.status_code, fetched.json()["query"]["n"], found["value"]]


async def forgotten() -> None:
    await asyncio.sleep(600)


@play("many_rows")
async def many_rows(ctx: Any, input: Any) -> Any:
    rows = [{"n": n, "name": f"{input['tag']}/{n:04d}", "url": input["url"]} for n in range(input["rows"])]
    done = await ctx.dataset("rows", rows).with_column("work", work).run(key="name", on_row_error="isolate")
    return {"completed": done.completed, "failed": done.failed}
