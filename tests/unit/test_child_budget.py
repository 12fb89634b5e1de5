"""Child plays and child runs count against the budget of the run that calls them."""

from typing import Any

from runtime.model.budget import Caps
from runtime.model.row import FinishedRow, RowState
from runtime.policy.lineage import lineage_of
from runtime.testing import MemoryStores
from tests.unit.test_programs import Row, col, data


async def doubled(ctx: Any, input: Any) -> int:
    return input["n"] * 2


async def two_children(row: Any, ctx: Any) -> list[int]:
    return [await ctx.run_play("double", "doubled", {"n": n}) for n in (row["n"], row["n"] + 1)]


async def two_runs(row: Any, ctx: Any) -> list[str]:
    return [(await ctx.enqueue_play(f"own-{n}", "doubled", {"n": n})).run_id for n in (1, 2)]


async def under(most: int, resolver: Any) -> tuple[Row, MemoryStores, FinishedRow]:
    stores = MemoryStores(lambda: 0.0)
    row = Row(col("x", resolver), doubled=doubled)
    row.budgets, row.accounts = stores.budgets, await stores.budgets.open("r", Caps(child_plays=most), ())
    return row, stores, await row.turn()


async def test_a_replay_counts_nothing_again() -> None:
    row, stores, ended = await under(2, two_children)
    assert data(ended)["x"] == [4, 6]
    assert data(await row.turn())["x"] == [4, 6]
    assert stores.budgets.accounts["r"].now.child_plays == 2


async def test_beyond_the_cap_the_row_fails_and_says_what_to_do() -> None:
    _, stores, ended = await under(1, two_children)
    assert ended.state is RowState.FAILED
    assert b"run r has used 1 of its 1 child plays" in (ended.error or b"")
    assert b"playlane budget r --child-plays N" in (ended.error or b"")
    assert stores.budgets.accounts["r"].now.child_plays == 1


async def test_child_runs_count_too_and_are_counted_against_their_caller() -> None:
    row, stores, ended = await under(1, two_runs)
    assert ended.state is RowState.FAILED
    (started,) = row.started.values()
    assert lineage_of(started.run_id, "doubled", started.options).root_run_id == "r"
    assert stores.budgets.accounts["r"].now.child_plays == 1
