"""Rows of a dataset, read in input order from whatever its sheet still has of it."""

from runtime.model import json_value
from runtime.model.row import RowState
from runtime.model.stored_row import Stretch, rows_digest
from tests.contract.stores_world import LIMITS, StoresWorld

PAGE = LIMITS.page_rows


async def positions(world: StoresWorld, dataset_id: int, **changes: object) -> list[int]:
    stretch = Stretch(**{"dataset_id": dataset_id, "limit": 100, **changes})  # pyright: ignore[reportArgumentType]
    rows = await world.reads.rows(stretch)
    assert rows is not None
    return [row.position for row in rows]


async def test_rows_come_in_order_from_anywhere(world: StoresWorld) -> None:
    dataset = await world.seeded(3)
    for page in range(3):
        await world.settling.claim_pages(dataset)
        await world.run_page(dataset, page)
    everything = list(range(3 * PAGE))
    assert await positions(world, dataset) == everything
    assert await positions(world, dataset, after=3, limit=2) == [4, 5]
    assert await positions(world, dataset, skip=5, limit=1) == [5]
    assert await positions(world, dataset, after=3, skip=2, limit=2) == [6, 7]
    assert await positions(world, dataset, skip=len(everything)) == []
    assert await positions(world, dataset, from_end=True, limit=1) == [everything[-1]]
    assert await positions(world, dataset, from_end=True, skip=2, limit=2) == everything[-3:-5:-1]
    assert await positions(world, dataset, from_end=True, skip=len(everything)) == []
    first = await world.reads.rows(Stretch(dataset_id=dataset, limit=1)) or []
    assert [row.row_key for row in first] == ["k0"]
    assert json_value.loads(first[0].data.encode()) == {"c": "v:k0"}
    again = await world.reads.rows(Stretch(dataset_id=dataset, limit=1)) or []
    assert rows_digest(again) == rows_digest(first)


async def test_failed_rows_only_where_they_are_asked_for(world: StoresWorld) -> None:
    dataset = await world.seeded(2)
    await world.settling.claim_pages(dataset)
    await world.run_page(dataset, 0)
    await world.run_page(dataset, 1, state=RowState.FAILED)
    assert await positions(world, dataset) == list(range(PAGE))
    assert await positions(world, dataset, failed=True) == list(range(2 * PAGE))


async def test_rows_that_a_newer_run_has_written_are_left_out(world: StoresWorld) -> None:
    old = await world.seeded(2)
    await world.settling.claim_pages(old)
    await world.run_page(old, 0)
    await world.run_page(old, 1)
    new = await world.seeded(1, run_id="r2")
    await world.settling.claim_pages(new)
    await world.run_page(new, 0, run_id="r2")
    assert await positions(world, old) == list(range(PAGE, 2 * PAGE))
    assert await positions(world, old, limit=1) == [PAGE]
    assert await positions(world, old, from_end=True, skip=PAGE) == []
    assert await positions(world, new) == list(range(PAGE))


async def test_an_unknown_dataset_is_told_from_an_empty_one(world: StoresWorld) -> None:
    dataset = await world.seeded(1)
    assert await positions(world, dataset) == []
    assert await world.reads.rows(Stretch(dataset_id=dataset + 1_000, limit=1)) is None
