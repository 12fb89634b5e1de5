"""Any body of tools, sleeps, races and timeouts gives the result of its first life in every other one."""

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime.model.run import RunState
from tests.unit.body_world import World, run_to_end

DELAYS = st.sampled_from([0.0, 0.2, 0.4, 0.6])
LEAVES = st.tuples(st.sampled_from(["tool", "sleep", "long sleep", "event", "dataset"]), DELAYS)
TREES: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: (
        st.tuples(st.sampled_from(["gather", "race", "one by one"]), st.lists(inner, min_size=1, max_size=3))
        | st.tuples(st.just("timeout"), inner)
    ),
    max_leaves=6,
)


async def do(ctx: Any, node: Any, path: str) -> Any:
    kind, what = node
    if kind == "tool":
        return await ctx.tools.execute(id=path, tool="t", input=f"{path}:{what}")
    if kind == "sleep":
        return await asyncio.sleep(what, path)
    if kind == "long sleep":
        return await ctx.sleep(what, id=path)
    if kind == "event":
        return await ctx.wait_for_event("e", key=f"at {what}", timeout=0.5, on_timeout="none")
    if kind == "dataset":
        handle = await ctx.dataset(f"d{path}", [{"a": 1}]).with_column("x", lambda row, ctx: 1).run()
        return handle.rows
    if kind == "timeout":
        return await in_time(ctx, what, path)
    return await many(ctx, kind, what, path)


async def in_time(ctx: Any, node: Any, path: str) -> Any:
    try:
        async with asyncio.timeout(0.3):
            return await do(ctx, node, path + "0")
    except TimeoutError:
        return "late"


async def many(ctx: Any, kind: str, nodes: list[Any], path: str) -> Any:
    if kind == "one by one":
        return [await do(ctx, node, f"{path}{n}") for n, node in enumerate(nodes)]
    parts = [do(ctx, node, f"{path}{n}") for n, node in enumerate(nodes)]
    if kind == "gather":
        return await asyncio.gather(*parts)
    tasks = [asyncio.create_task(part) for part in parts]
    done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    return [n for n, task in enumerate(tasks) if task in done]


def body_of(tree: Any) -> Any:
    async def it(ctx: Any, input: Any) -> Any:
        said = await do(ctx, tree, "r")
        return [said, await ctx.tools.execute(id="end", tool="t", input=repr(said))]

    return it


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TREES)
def test_a_body_crashed_at_every_entry_repeats_itself(tree: Any) -> None:
    """The journal of the finished run, replayed by a new attempt, asks and answers the same."""
    world = World(event_s={f"at {at}": at for at in (0.0, 0.2, 0.4, 0.6)})
    ended = run_to_end(body_of(tree), world, crash_at=("body.after_journal", 1), attempts=400)
    assert ended.state is RunState.COMPLETED, ended.error
    assert ended.result is not None
    result, journal = ended.result, list(ended.entries)
    ended.state, ended.held = RunState.QUEUED, False
    again = run_to_end(body_of(tree), ended)
    assert again.result == result
    assert again.entries == journal
    assert len(set(again.tool_calls)) == len(again.tool_calls)
