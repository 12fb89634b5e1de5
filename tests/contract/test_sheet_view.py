"""A sheet as a SQL view: the columns that its datasets had, under their own names, whatever these are."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from psycopg import sql

from runtime.model import json_value
from runtime.model.dataset import NewDataset, SeedPage, SeedRow
from runtime.policy.sheet_views import view_name
from runtime.postgres_store.pool import Pool, open_pool
from runtime.postgres_store.views import PostgresViews
from tests.contract.conftest import empty
from tests.contract.postgres_world import postgres_world
from tests.contract.stores_world import LIMITS, StoresWorld

VIEW = view_name("org", "play", "sheet")
ODD = [
    'say "hi"',
    "'; drop table runs; --",
    "a\nb",
    "100 %s",
    "é" * 60,
    "row_key",
    "_row_key",
    "Name",
    "name",
]


@pytest.fixture
async def pool(contract_database: str) -> AsyncIterator[Pool]:
    pool = open_pool(contract_database, LIMITS)
    await pool.open()
    try:
        await empty(pool)
        async with pool.connection() as connection:
            await connection.execute(sql.SQL("drop view if exists {}").format(sql.Identifier(VIEW)))
        yield pool
    finally:
        await pool.close()


async def seeded(world: StoresWorld, run_id: str, inputs: list[str], computed: tuple[str, ...]) -> int:
    await world.held_run(run_id)
    new = NewDataset(run_id=run_id, key="d", namespace="sheet", columns=computed, source_hash="h")
    opened = await world.datasets.open(new, 1, "dataset:d")
    await world.datasets.seed_page(
        SeedPage(
            dataset_id=opened.dataset_id,
            run_id=run_id,
            attempt=1,
            page=0,
            first_position=0,
            end_position=1,
            rows=(SeedRow(position=0, row_key="k", input=b"{}"),),
            input_digest="x",
            input_columns=tuple(inputs),
        )
    )
    return opened.dataset_id


async def select(pool: Pool) -> tuple[list[str], list[tuple[Any, ...]]]:
    async with pool.connection() as connection:
        cursor = await connection.execute(sql.SQL("select * from {}").format(sql.Identifier(VIEW)))
        return [column.name for column in cursor.description or ()], await cursor.fetchall()


async def store(pool: Pool, data: dict[str, Any]) -> None:
    async with pool.connection() as connection:
        await connection.execute(
            "insert into sheet_rows (org_id, play, namespace, row_key, data, cell_meta, write_version, run_id)"
            " values ('org', 'play', 'sheet', 'k', %s::jsonb, '{}', 1, 'r1')",
            (json_value.dumps(data).decode(),),
        )


async def test_columns_of_any_name(pool: Pool) -> None:
    world, views = postgres_world(pool), PostgresViews(pool, LIMITS)
    dataset = await seeded(world, "r1", ODD, ("found", "_scratch"))
    await store(pool, {name: f"v{n}" for n, name in enumerate(ODD)} | {"found": {"a": 1}})
    await views.refresh(dataset)
    names, rows = await select(pool)
    assert names[:4] == ["_row_key", "_state", "_run_id", "_updated_at"]
    assert names[4:8] == ODD[:4] and names[-1] == "found" and len(names) == 4 + len(ODD) + 1
    assert rows[0][4:] == (*(f"v{n}" for n in range(len(ODD))), '{"a": 1}')


async def test_a_later_run_adds_columns_and_takes_none(pool: Pool) -> None:
    world, views = postgres_world(pool), PostgresViews(pool, LIMITS)
    await views.refresh(await seeded(world, "r1", ["a", "b"], ("x",)))
    async with pool.connection() as connection:
        await connection.execute(
            sql.SQL("create view over_it as select a, x from {}").format(sql.Identifier(VIEW))
        )
    try:
        later = await seeded(world, "r2", ["c", "a"], ("y",))
        await asyncio.gather(*(views.refresh(later) for _ in range(5)))
        names, _ = await select(pool)
        assert names[4:] == ["a", "b", "x", "c", "y"]
    finally:
        async with pool.connection() as connection:
            await connection.execute("drop view over_it")


async def test_a_view_that_somebody_dropped_comes_back(pool: Pool) -> None:
    world, views = postgres_world(pool), PostgresViews(pool, LIMITS)
    dataset = await seeded(world, "r1", ["a"], ("x",))
    await views.refresh(dataset)
    async with pool.connection() as connection:
        await connection.execute(sql.SQL("drop view {}").format(sql.Identifier(VIEW)))
    await views.refresh(dataset)
    assert (await select(pool))[0][4:] == ["a", "x"]
    await views.refresh(dataset + 1_000)
