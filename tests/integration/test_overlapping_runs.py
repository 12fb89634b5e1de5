"""Two runs write the same rows of one sheet in opposite orders, four processes each at once."""

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from runtime.model.dataset import NewDataset, SeedPage, SeedRow
from runtime.model.run import NewRun
from runtime.model.slice import SliceId
from runtime.ports import RowWrite, SliceRows
from runtime.postgres_store.pool import Database, Pool, open_pool
from tests.contract.postgres_world import postgres_world
from tests.contract.stores_world import LIMITS, StoresWorld, finished

ROWS, WORKERS = 600, 4
WIDE = replace(LIMITS, slice_rows=20, slices_per_page=5, pages_in_flight=100, database_pool=10)
RUNS = {"older": 1, "newer": -1}


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    opened = open_pool(database_url, WIDE)
    await opened.open()
    try:
        yield opened
    finally:
        await opened.close()


async def prepared(world: StoresWorld, run_id: str, direction: int) -> int:
    await world.session(run_id)
    await world.runs.insert(NewRun(run_id=run_id, org_id="org", play="play", input=None))
    assert await world.runs.claim(run_id, run_id) is not None
    new = NewDataset(run_id=run_id, key="d", namespace="sheet", columns=("c",), source_hash="h")
    dataset_id = (await world.datasets.open(new, 1, "dataset:d")).dataset_id
    keys = [f"k{n:04d}" for n in range(ROWS)][::direction]
    for page in range(ROWS // WIDE.page_rows):
        first = page * WIDE.page_rows
        rows = tuple(
            SeedRow(position=first + n, row_key=key, input=b"{}")
            for n, key in enumerate(keys[first : first + WIDE.page_rows])
        )
        await world.datasets.seed_page(
            SeedPage(
                dataset_id=dataset_id,
                run_id=run_id,
                attempt=1,
                page=page,
                first_position=first,
                end_position=first + WIDE.page_rows,
                rows=rows,
                input_digest="",
            )
        )
    await world.datasets.finish_seeding(dataset_id, 1)
    await world.settling.claim_pages(dataset_id)
    return dataset_id


async def write_all(world: StoresWorld, run_id: str, dataset_id: int, worker: int) -> None:
    """This worker's share of the run's slices, a few slices a write, in an order of its own."""
    session_id = await world.session(f"{run_id}-{worker}")
    order = random.Random(worker)
    slices = [(page, number) for page in range(ROWS // WIDE.page_rows) for number in range(5)]
    mine = slices[worker::WORKERS]
    order.shuffle(mine)
    while mine:
        parts: list[SliceRows] = []
        for page, number in [mine.pop() for _ in range(min(3, len(mine)))]:
            taken = await world.slices.take(
                run_id, SliceId(dataset_id=dataset_id, page=page, slice=number), session_id
            )
            assert taken is not None
            rows = [finished(row.position, row.row_key, value=run_id) for row in taken.rows]
            order.shuffle(rows)
            parts.append(
                SliceRows(id=taken.id, fence=taken.fence, facts=taken.facts, rows=tuple(rows), final=True)
            )
        answer = await world.slices.flush(RowWrite(session_id=session_id, slices=tuple(parts)))
        assert answer.done == {part.id for part in parts}


async def test_no_deadlock_reaches_a_row_and_the_newer_run_wins(pool: Pool, database_url: str) -> None:
    world = postgres_world(pool, WIDE)
    datasets = {run_id: await prepared(world, run_id, direction) for run_id, direction in RUNS.items()}
    await asyncio.gather(
        *(
            write_all(world, run_id, dataset_id, worker)
            for worker in range(WORKERS)
            for run_id, dataset_id in datasets.items()
        )
    )
    sheet = await world.sheet("org", "play", "sheet")
    assert sheet == {f"k{n:04d}": {"c": f"newer:k{n:04d}"} for n in range(ROWS)}
    superseded = {
        run_id: sum(row.superseded for row in (await world.rows(dataset_id)).values())
        for run_id, dataset_id in datasets.items()
    }
    assert superseded["newer"] == 0
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        query = "select superseded, completed from dataset_counts where dataset_id = %s"
        counted = await (await connection.execute(query, (datasets["older"],))).fetchall()
        assert sum(row[0] for row in counted) == superseded["older"]
        assert sum(row[1] for row in counted) == ROWS
        found = await connection.execute(
            "select deadlocks from pg_stat_database where datname = current_database()"
        )
        assert await found.fetchone() == (0,)


async def test_a_deadlock_is_tried_again_and_nobody_notices(pool: Pool) -> None:
    """Two transactions lock two rows in opposite orders: Postgres ends one of them, which then has its turn."""
    async with pool.connection() as connection:
        await connection.execute("create table pair (id int primary key, n int not null default 0)")
        await connection.execute("insert into pair values (1), (2)")
    database, both, tries = Database(pool, WIDE), asyncio.Barrier(2), 0

    async def add(first: int, second: int) -> None:
        async def work(connection: Any) -> None:
            nonlocal tries
            tries += 1
            is_first_try = tries <= 2
            async with connection.transaction():
                await connection.execute("update pair set n = n + 1 where id = %s", (first,))
                if is_first_try:
                    await both.wait()
                await connection.execute("update pair set n = n + 1 where id = %s", (second,))

        await database.run("adding", work)

    await asyncio.gather(add(1, 2), add(2, 1))
    async with pool.connection() as connection:
        assert await (await connection.execute("select n from pair order by id")).fetchall() == [(2,), (2,)]
    assert tries == 3
