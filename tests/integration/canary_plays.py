"""A play whose rows succeed, raise with all that they can reach in the text, and lose their answer."""

from typing import Any

from runtime import play

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


@play("canary")
async def canary(ctx: Any, input: Any) -> Any:
    ctx.log("began", ctx=repr(ctx))
    rows = [{"name": name} for name in ROWS]
    made = await (
        ctx.dataset("rows", rows).with_column("outcome", outcome).run(key="name", on_row_error="isolate")
    )
    return {"completed": made.completed, "failed": made.failed}
