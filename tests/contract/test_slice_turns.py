"""Runs take turns for the places of a row process: a small run doesn't stand behind all slices of large ones."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

import pytest

from runtime.postgres_store.pool import Pool, open_pool
from runtime.postgres_store.slice_turns import PostgresWaitingSlices
from tests.contract.conftest import empty
from tests.contract.postgres_world import postgres_world
from tests.contract.stores_world import LIMITS, StoresWorld

pytestmark = pytest.mark.servers


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    world: StoresWorld
    store: PostgresWaitingSlices

    async def waiting(self) -> Sequence[tuple[str, int, int]]:
        return [(one.run_id, one.id.page, one.id.slice) for one in await self.store.waiting_slices(10)]

    async def out(self, run_id: str, pages: int = 2) -> int:
        """A run whose first pages are out and sent."""
        dataset_id = await self.world.seeded(pages, run_id)
        for page in await self.world.settling.claim_pages(dataset_id):
            await self.world.due(dataset_id, page)
        return dataset_id


@pytest.fixture
async def rows(contract_database: str) -> AsyncIterator[Rows]:
    pool: Pool = open_pool(contract_database, LIMITS)
    await pool.open()
    try:
        await empty(pool)
        yield Rows(world=postgres_world(pool), store=PostgresWaitingSlices(pool, LIMITS))
    finally:
        await pool.close()


async def test_each_run_is_seen_with_its_first_free_slice_who_waits_longest_first(rows: Rows) -> None:
    large = await rows.out("r1")
    await rows.world.age(5)
    await rows.out("r2", pages=1)
    assert await rows.waiting() == [("r1", 0, 0), ("r2", 0, 0)]
    await rows.world.taken(large, 0, 0)
    assert await rows.waiting() == [("r1", 0, 1), ("r2", 0, 0)]


async def test_what_was_never_sent_or_came_back_is_not_seen(rows: Rows) -> None:
    world = rows.world
    dataset_id = await world.seeded(1)
    await world.settling.claim_pages(dataset_id)
    assert await rows.waiting() == [], "never sent"
    await world.due(dataset_id, 0)
    first = await world.taken(dataset_id, 0, 0)
    await world.taken(dataset_id, 0, 1)
    await world.slices.release([(first.id, first.fence)])
    assert await rows.waiting() == [], "one is held, one came back and is to be sent again"
    await world.due(dataset_id, 0)
    assert await rows.waiting() == [("r1", 0, 0)]
    again = await world.taken(dataset_id, 0, 0)
    await world.slices.release([(again.id, again.fence)], 30.0)
    assert await rows.waiting() == [], "given back for later"


async def test_slices_of_an_ended_run_are_not_seen(rows: Rows) -> None:
    await rows.out("r1", pages=1)
    await rows.world.runs.cancel("r1")
    assert await rows.waiting() == []
