"""Child plays of a run are counted where they ended: in its rows, its body, and as runs of their own."""

import dataclasses
import json
from typing import Any

import pytest

from runtime.model.lineage import Lineage
from runtime.model.operation import JournalEntry
from runtime.model.run import NewRun, RunState
from runtime.model.status import ChildCounts
from runtime.policy.lineage import child_options
from runtime.ports import RowWrite, SliceRows
from runtime.postgres_store.named import load
from runtime.postgres_store.pool import Pool
from runtime.postgres_store.status import PostgresStatus
from tests.contract.postgres_world import postgres_world
from tests.contract.stores_world import LIMITS, StoresWorld, finished

pytestmark = pytest.mark.servers


@pytest.fixture
def world(pool: Pool) -> StoresWorld:
    return postgres_world(pool)


@pytest.fixture
def status(pool: Pool) -> PostgresStatus:
    return PostgresStatus(pool, LIMITS)


async def test_children_of_rows_are_counted_with_their_rows_once(
    world: StoresWorld, status: PostgresStatus
) -> None:
    dataset_id = await world.seeded(1)
    await world.settling.claim_pages(dataset_id)
    taken = await world.taken(dataset_id, 0, 0)
    rows = tuple(
        dataclasses.replace(finished(row.position, row.row_key), children_ok=3, children_failed=1)
        for row in taken.rows
    )
    part = SliceRows(id=taken.id, fence=taken.fence, facts=taken.facts, rows=rows, final=True)
    for _ in range(2):  # the answer to the first was lost
        await world.slices.flush(RowWrite(session_id="s1", slices=(part,)))
    assert await status.children("r1") == ChildCounts(ok=6, failed=2)
    await world.flush(await world.taken(dataset_id, 0, 1))
    assert await status.children("r1") == ChildCounts(ok=6, failed=2)


async def test_children_of_a_body_are_counted_by_its_journal(
    world: StoresWorld, status: PostgresStatus
) -> None:
    run = await world.held_run()
    outcomes: list[tuple[str, dict[str, Any]]] = [
        ("child", {"ok": 1, "children": {"ok": 4, "failed": 1}}),  # with those inside it
        ("child", {"error": {"code": "bad"}}),
        ("tool", {"ok": {"children": {"ok": 9}}}),
    ]
    entries = [
        JournalEntry(seq=n, op_key=f"k{n}", kind=kind, digest="d", outcome=outcome)
        for n, (kind, outcome) in enumerate(outcomes)
    ]
    await world.runs.append_journal(run.run_id, run.attempt, entries)
    assert await status.children("r1") == ChildCounts(ok=4, failed=2)


async def test_child_runs_are_those_below_a_run(world: StoresWorld, status: PostgresStatus) -> None:
    lineage = Lineage(root_run_id="r1", plays=("play", "child"))
    await world.held_run("r1")
    for run_id in ("r1.a", "r1.b", "r1.a.c", "r1.a.d"):
        own = child_options(lineage, {})
        await world.runs.insert(NewRun(run_id=run_id, org_id="org", play="child", input=None, options=own))
    await world.runs.insert(NewRun(run_id="r1.no_child", org_id="org", play="play", input=None))
    for run_id, state in (("r1.a.c", RunState.FAILED), ("r1.b", RunState.COMPLETED)):
        claimed = await world.runs.claim(run_id, "s1")
        assert claimed is not None
        error = {"code": "bad"} if state is RunState.FAILED else None
        assert await world.runs.end(run_id, claimed.attempt, state, result=b"1", error=error)
    assert await status.children("r1") == ChildCounts(runs=4, runs_ended=2, runs_failed=1)
    assert await status.children("r1.a") == ChildCounts(runs=2, runs_ended=1, runs_failed=1)
    assert await status.children("nobody") == ChildCounts()


async def test_only_child_runs_are_looked_at(pool: Pool) -> None:
    async with pool.connection() as connection:
        await connection.execute(
            b"insert into runs (run_id, org_id, play, input, options, state) select 'r' || n, 'o', 'p', '{}', case"
            b" when n %% 100 = 0 then '{\"lineage\": {\"root\": \"r1\"}}'::jsonb else '{}' end, 'completed'"
            b" from generate_series(1, %s) n",
            (20_000,),
        )
        await connection.execute(b"analyze runs")
        explain = b"explain (format json) " + load("children")["of_run"]
        ((plan,),) = await (await connection.execute(explain, {"run_id": "r1", "id_chars": 160})).fetchall()
    assert "runs_root_idx" in json.dumps(plan)
