"""Postgres that lost commits (a failover to a replica that lagged): a claim may come back from the dead.

A slice was done; its end was lost, its claim wasn't. The process that lives on knows nothing of it, and nobody else
may take it: the process compares what it holds with what Postgres says that it holds.
"""

import pytest

from runtime.postgres_store.slices import PostgresSlices
from tests.contract.stores_world import LIMITS, TTL_S, StoresWorld


@pytest.mark.parametrize("world", [pytest.param("postgres", marks=pytest.mark.servers)], indirect=True)
async def test_a_claim_whose_end_was_lost_is_given_back_by_its_process(world: StoresWorld) -> None:
    dataset_id = await world.seeded(1)
    await world.settling.claim_pages(dataset_id)
    forgotten = await world.taken(dataset_id, 0, 0)
    held = await world.taken(dataset_id, 0, 1)
    slices = world.slices
    assert isinstance(slices, PostgresSlices)
    assert await slices.give_back_forgotten("s1", [held.id]) == 0, "its taking may still be on its way"
    await world.age(LIMITS.session_ttl_s + 1)
    await world.sessions.renew("s1", TTL_S)
    await world.session("s2")
    assert await world.take(dataset_id, 0, 0, "s2") is None
    assert await slices.give_back_forgotten("s1", [held.id]) == 1
    again = await world.taken(dataset_id, 0, 0, "s2")
    assert again.fence > forgotten.fence
    assert await world.take(dataset_id, 0, 1, "s2") is None, "what it holds it keeps"
