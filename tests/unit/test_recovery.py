"""Row workers get a dataset's columns from a replay of its body that starts nothing."""

import asyncio
import gc
import threading
from dataclasses import replace
from typing import Any, cast

import pytest

from runtime.context.scope import Scope, current_scope
from runtime.engine.body_attempt import DriveEnd
from runtime.engine.recovery import Recovery
from runtime.errors import NonDeterministicPlayError, PlayDefinitionError, PlayVersionUnavailableError
from runtime.model.dataset import DatasetFacts
from runtime.model.operation import JournalEntry
from runtime.policy.identity import operation_digest
from tests.unit.awkward_plays import ROWS, tool
from tests.unit.body_world import FAST, RUN, World, bridge, dataset_facts, recovery, runner


class Row:
    """A row's scope."""

    def __init__(self) -> None:
        self.logged: list[str] = []

    async def tool(self, *, id: str, tool: str, input: Any, options: Any = None) -> Any:
        await asyncio.sleep(0)
        return f"row {tool}({input})"

    def refuse(self, call: str, instead: str) -> None:
        raise PlayDefinitionError(f"{call} can't be used inside a row: {instead}")

    def log(self, text: str, fields: dict[str, Any]) -> None:
        self.logged.append(text)


async def closes_over(ctx: Any, input: Any) -> Any:
    k = await tool(ctx, "k")

    async def both(row: Any, own: Any) -> Any:
        mine = own.tools.execute(id="p", tool="p", input=row["name"])
        return await asyncio.gather(mine, ctx.tools.execute(id="q", tool="q", input=k))

    table = (
        ctx.dataset("a", ROWS).with_column("x", lambda row, ctx: [row["name"], k]).with_column("two", both)
    )
    first = await table.run(key="name")
    await ctx.dataset("b", ROWS).with_column("y", lambda row, ctx: first.rows).run(key="name")


def suspended(function: Any, world: World, on: Any) -> World:
    assert runner(world, function, on).drive(RUN) is DriveEnd.WAITING
    return world


def test_closures_and_both_contexts() -> None:
    world = World(dataset_s={"a": 1_000.0})
    with bridge() as on:
        suspended(closes_over, world, on)
        recovered = recovery(world, closes_over, on).columns(dataset_facts(world, "a"))
        assert [column.name for column in recovered.columns] == ["x", "two"]
        assert recovered.columns[0].resolver({"name": "n"}, recovered.ctx) == ["n", "t(k)"]

        async def row() -> Any:
            current_scope.set(cast("Scope", Row()))
            return await recovered.columns[1].resolver({"name": "n"}, recovered.ctx)

        assert on.call(row(), 5) == ["row p(n)", "row q(t(k))"]


def test_ctx_in_a_row() -> None:
    world = World(dataset_s={"a": 1_000.0})
    with bridge() as on:
        suspended(closes_over, world, on)
        ctx = recovery(world, closes_over, on).columns(dataset_facts(world, "a")).ctx
        scope = Row()

        async def row() -> None:
            current_scope.set(cast("Scope", scope))
            ctx.log("in a row")
            with pytest.raises(PlayDefinitionError, match="inside a row"):
                ctx.dataset("c", ROWS)
            with pytest.raises(PlayDefinitionError, match="inside a row"):
                await ctx.csv("x.csv")

        on.call(row(), 5)
        assert scope.logged == ["in a row"]


def test_a_parked_body_goes_on_for_the_next_dataset() -> None:
    starts: list[int] = []

    async def it(ctx: Any, input: Any) -> Any:
        starts.append(1)
        await closes_over(ctx, input)

    world = World(dataset_s={"a": 0.3, "b": 1_000.0})
    with bridge() as on:
        suspended(it, world, on)
        recoveries = recovery(world, it, on)
        recoveries.columns(dataset_facts(world, "a"))
        world.sleep_until_due()
        suspended(it, world, on)
        before = len(starts)
        recovered = recoveries.columns(dataset_facts(world, "b"))
        assert recovered.columns[0].resolver({}, recovered.ctx) == 3
        assert len(starts) == before
        assert recoveries.parked() == 1


def two_branches(world: World, entries: list[str]) -> Any:
    async def it(ctx: Any, input: Any) -> Any:
        async def left() -> Any:
            y = await tool(ctx, "left")
            return await ctx.dataset("c", ROWS).with_column("z", lambda row, ctx: y).run()

        async def right() -> Any:
            k = await tool(ctx, "k")
            return await ctx.dataset("b", ROWS).with_column("x", lambda row, ctx: k).run()

        return await asyncio.gather(left(), right())

    for seq, name in enumerate(entries):
        digest = operation_digest("tool", {"id": name, "tool": "t", "input": name})
        world.entries.append(
            JournalEntry(
                seq=seq,
                op_key=f"tool:{name}:0",
                kind="tool",
                digest=digest,
                outcome={"ok": {"json": "41"}, "at_ms": 1},
            )
        )
    return it


def facts(namespace: str, columns: tuple[str, ...]) -> DatasetFacts:
    return DatasetFacts(
        dataset_id=1,
        run_id=RUN,
        org_id="org",
        play="it",
        key=namespace,
        namespace=namespace,
        columns=columns,
        source_hash="",
        on_row_error="isolate",
        options={},
        write_version=1,
    )


def test_another_branch_in_flight_is_normal_but_an_unreached_dataset_is_not() -> None:
    world = World()
    it = two_branches(world, ["k"])
    with bridge() as on:
        recoveries = recovery(world, it, on)
        recovered = recoveries.columns(facts("b", ("x",)))
        assert recovered.columns[0].resolver(None, None) == 41
        with pytest.raises(NonDeterministicPlayError, match="has not asked for it"):
            recoveries.columns(facts("c", ("z",)))
        assert world.tool_calls == []


def test_other_columns_never_mix() -> None:
    world = World()
    it = two_branches(world, ["k"])
    with bridge() as on, pytest.raises(PlayVersionUnavailableError, match="begun with the columns old"):
        recovery(world, it, on).columns(facts("b", ("old",)))


def test_a_worker_without_the_play_says_so() -> None:
    world = World()
    with bridge() as on, pytest.raises(PlayVersionUnavailableError, match='no play "gone"'):
        recovery(world, closes_over, on).columns(replace(facts("a", ("x",)), play="gone"))


def test_one_recovery_at_a_time() -> None:
    starts: list[int] = []
    world = World()
    inner = two_branches(world, ["k"])

    async def it(ctx: Any, input: Any) -> Any:
        starts.append(1)
        return await inner(ctx, input)

    with bridge() as on:
        recoveries = recovery(world, it, on)
        threads = [
            threading.Thread(target=recoveries.columns, args=(facts("b", ("x",)),), daemon=True)
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(5)
    assert starts == [1]


def evict(recoveries: Recovery, count: int) -> None:
    for n in range(count):
        recoveries.columns(replace(facts("b", ("x",)), run_id=f"run-{n}"))


def test_a_body_is_parked_while_rows_use_it_and_let_go_after() -> None:
    """Cancelling it would run its `finally` and close what its resolvers close over."""
    closed: list[int] = []

    async def it(ctx: Any, input: Any) -> Any:
        try:
            await ctx.dataset("b", ROWS).with_column("x", lambda row, ctx: 1).run()
        finally:
            closed.append(1)

    world = World()
    with bridge() as on:
        recoveries = recovery(world, it, on, replace(FAST, parked_bodies=2))
        used = recoveries.columns(replace(facts("b", ("x",)), run_id="used"))
        evict(recoveries, 5)
        gc.collect()
        evict(recoveries, 1)
        assert used.columns[0].resolver({}, used.ctx) == 1
        evict(recoveries, 1)
        assert recoveries.parked() == 3
        before = len(closed)
        del used
        gc.collect()
        evict(recoveries, 1)
        assert recoveries.parked() == 2
        assert len(closed) == before + 1
        gc.collect()
        recoveries.forget("run-0")
        assert recoveries.parked() == 1
