"""Approvals: each request waits for somebody's word. What was approved cools off for a while and is ordered, once;
what nobody answers in time expires. Nothing is held while people think.
"""

from runtime import play


async def decision(row, ctx):
    """What somebody said: `{"approved": bool, "by": name}`, or None when the time was up."""
    return await ctx.wait_for_event(
        "decision", key=f"approval:{row['id']}", timeout=float(row["answer_within_s"]), on_timeout="none"
    )


def outcome(row, ctx):
    """approved, declined or expired"""
    if row["decision"] is None:
        return "expired"
    return "approved" if row["decision"]["approved"] else "declined"


@play("approvals")
async def approvals(ctx, input):
    """Requests from a CSV (columns id, what, answer_within_s); `input["cool_off_s"]` between word and order."""
    requests = await ctx.csv(input["file"])

    async def order(row, ctx):
        await ctx.sleep(input["cool_off_s"])
        placed = await ctx.tools.execute(id="order", tool="echo", input={"item": f"order {row['id']}"})
        return placed["value"]

    decided = await (
        ctx.dataset("requests", requests)
        .with_column("decision", decision)
        .with_column("outcome", outcome)
        .with_column("order", order, run_if=lambda row: row["outcome"] == "approved")
        .run(key="id")
    )
    counts = dict.fromkeys(["approved", "declined", "expired"], 0)
    async for row in decided:
        counts[row["outcome"]] += 1
    return {"requests": decided, "counts": counts}
