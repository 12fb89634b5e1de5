"""A play whose rows succeed, raise with all that they can reach in the text, and lose their answer."""

import base64
import logging
from typing import Any

from runtime import play
from runtime.errors import EgressRefusedError

ROWS = ("fine", "raises", "cut", "late")


async def outcome(row: Any, ctx: Any) -> Any:
    tool = "echo_fenced" if row["name"] == "cut" else "echo_single"
    found = await ctx.tools.execute(id="outcome", tool=tool, input={"item": row["name"]})
    if row["name"] == "raises":
        raise ValueError(f"{in_reach()} {ctx!r} {row!r} {found!r}")
    return found["value"]


def in_reach() -> str:
    """What of this process holds the token, or holds what holds it."""
    from workers.wiring import process

    here = process()
    api = here.stores.api
    return f"{api!r} {vars(api)!r} {here.settings!r} {here.settings.model_dump_json()} {here.stores!r}"[
        :1_900
    ]


async def fetched(row: Any, ctx: Any) -> Any:
    """The secrets go out in a header and in a body; one row tells them to whoever listens, one waits for ever."""
    echo = row["api"] + "/_web/echo"
    token = await ctx.secrets.get("OF_THE_API")
    print("printed", token)
    ctx.log(f"logged {token}", token=token)
    logging.getLogger("canary").error("also logged %s", token)
    if row["name"] == "fine":
        try:
            await ctx.fetch("inside", echo, params={"to": "http://169.254.169.254/latest/meta-data/"})
        except EgressRefusedError as refused:
            ctx.log(f"refused: {refused}")
    if row["name"] == "late":
        await ctx.fetch(
            "late", echo, params={"delay_ms": 5_000}, auth=ctx.secrets.bearer("OF_THE_API"), timeout_ms=50
        )
    got = await ctx.fetch(
        "echo",
        echo,
        method="POST",
        json={"token": token},
        auth=[ctx.secrets.bearer("OF_THE_API"), ctx.secrets.header("OF_THE_WORKERS", "x-key")],
        idempotency_key=row["name"],
    )
    if row["name"] == "raises":
        raise ValueError(f"{token} {token.encode().hex()} {base64.b64encode(token.encode()).decode()}")
    if row["name"] == "cut":
        return {"told": token}
    return got


@play("canary")
async def canary(ctx: Any, input: Any) -> Any:
    ctx.log("began", ctx=repr(ctx))
    told = await ctx.secrets.get("OF_THE_API")
    print("in the body", told)
    await (
        ctx.dataset("fetches", [{"name": name, "api": input["api"]} for name in ROWS])
        .with_column("fetched", fetched)
        .run(key="name", on_row_error="isolate")
    )
    rows = [{"name": name} for name in ROWS]
    made = await (
        ctx.dataset("rows", rows).with_column("outcome", outcome).run(key="name", on_row_error="isolate")
    )
    return {"completed": made.completed, "failed": made.failed}
