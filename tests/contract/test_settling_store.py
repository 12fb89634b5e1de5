"""Contract of SettlingStore."""

import psycopg
import pytest

from runtime.model.dataset import DatasetState
from runtime.model.row import RowState
from tests.contract.stores_world import EPOCH, LIMITS, StoresWorld


async def test_the_window_lets_few_pages_out(world: StoresWorld) -> None:
    dataset_id = await world.seeded(5)
    assert await world.settling.claim_pages(dataset_id) == [0, 1]
    assert await world.settling.claim_pages(dataset_id) == []
    await world.run_page(dataset_id, 1)
    assert await world.settling.claim_pages(dataset_id) == [2]


async def test_pages_go_out_while_the_dataset_is_seeded(world: StoresWorld) -> None:
    await world.held_run()
    dataset_id = (await world.opened()).dataset_id
    assert await world.settling.claim_pages(dataset_id) == []
    await world.seed(dataset_id, 0, ["a", "b", "c"])
    assert await world.settling.claim_pages(dataset_id) == [0]
    await world.run_page(dataset_id, 0)
    assert await world.settling.end_dataset(dataset_id) is None


async def test_a_page_settles_once_when_no_slice_is_open(world: StoresWorld) -> None:
    dataset_id = await world.seeded(1)
    assert not await world.settling.settle_page(dataset_id, 0)
    await world.settling.claim_pages(dataset_id)
    first, second = [await world.taken(dataset_id, 0, n) for n in await world.due(dataset_id, 0)]
    await world.flush(first)
    assert not await world.settling.settle_page(dataset_id, 0)
    await world.flush(second)
    assert await world.settling.settle_page(dataset_id, 0)
    assert not await world.settling.settle_page(dataset_id, 0)
    assert not await world.settling.settle_page(dataset_id, 99)


async def test_a_page_whose_rows_are_all_duplicates_settles_without_a_slice(world: StoresWorld) -> None:
    await world.held_run()
    dataset_id = (await world.opened()).dataset_id
    await world.seed(dataset_id, 0, ["a", "b"])
    await world.seed(dataset_id, 1, ["a", "b"])
    assert await world.settling.claim_pages(dataset_id) == [0, 1]
    assert await world.due(dataset_id, 1) == []
    assert await world.settling.settle_page(dataset_id, 1)


async def test_a_slice_that_died_after_its_last_row_is_closed_by_settling(world: StoresWorld) -> None:
    dataset_id = await world.seeded(1)
    await world.settling.claim_pages(dataset_id)
    for number in await world.due(dataset_id, 0):
        await world.flush(await world.taken(dataset_id, 0, number), final=False)
    assert not await world.settling.settle_page(dataset_id, 0)
    await world.kill("s1")
    assert await world.settling.settle_page(dataset_id, 0)


async def test_a_slice_is_sent_once_until_its_message_is_lost(world: StoresWorld) -> None:
    dataset_id = await world.seeded(1)
    await world.settling.claim_pages(dataset_id)
    assert await world.due(dataset_id, 0) == [0, 1]
    assert await world.due(dataset_id, 0) == []
    assert await world.due(dataset_id, 0, "epoch-2") == [0, 1]
    await world.age(6)
    assert await world.due(dataset_id, 0, "epoch-2") == []
    assert await world.due(dataset_id, 0, "epoch-2", queue_empty=True) == [0, 1]
    await world.age(31)
    assert await world.due(dataset_id, 0, "epoch-2") == [0, 1]


async def test_a_held_slice_is_not_sent(world: StoresWorld) -> None:
    dataset_id = await world.seeded(1)
    await world.settling.claim_pages(dataset_id)
    await world.due(dataset_id, 0)
    taken = await world.taken(dataset_id, 0, 0)
    assert await world.due(dataset_id, 0, "epoch-2") == [1]
    await world.slices.release([(taken.id, taken.fence)])
    assert await world.due(dataset_id, 0, "epoch-2") == [0]


async def test_the_slice_of_a_dead_session_is_sent_at_once(world: StoresWorld) -> None:
    dataset_id = await world.seeded(1)
    await world.settling.claim_pages(dataset_id)
    await world.due(dataset_id, 0)
    await world.taken(dataset_id, 0, 0)
    await world.kill("s1")
    assert await world.settling.stale_pages(EPOCH, queue_empty=False) == [("r1", dataset_id, 0)]
    assert await world.due(dataset_id, 0) == [0]
    assert await world.settling.stale_pages(EPOCH, queue_empty=False) == []


async def test_the_dataset_ends_once_and_wakes_its_run(world: StoresWorld) -> None:
    dataset_id = await world.seeded(2)
    assert await world.runs.suspend("r1", 1, 0)
    await world.settling.claim_pages(dataset_id)
    await world.run_page(dataset_id, 0, state=RowState.FAILED)
    assert await world.settling.end_dataset(dataset_id) is None
    await world.run_page(dataset_id, 1)
    assert await world.settling.stale_datasets() == [dataset_id]
    ended = await world.settling.end_dataset(dataset_id)
    assert ended is not None
    assert (ended.run_id, ended.run_waits) == ("r1", True)
    assert await world.settling.end_dataset(dataset_id) is None
    assert await world.settling.stale_datasets() == []
    claimed = await world.runs.claim("r1", "s1")
    assert claimed is not None
    poll = await world.runs.poll("r1", claimed.attempt)
    assert poll.wakes == 1
    ((key, outcome),) = poll.resolved
    assert key == "dataset:d"
    assert outcome["ok"] == {
        "dataset": "d",
        "namespace": "sheet",
        "dataset_id": dataset_id,
        "rows": 8,
        "completed": 4,
        "failed": 4,
        "cancelled": 0,
        "duplicates": 0,
        "superseded": 0,
        "kept": 0,
        "left_out": 0,
    }
    assert isinstance(outcome["at_ms"], int)


async def test_only_rows_with_values_count_as_superseded(world: StoresWorld) -> None:
    """Rows that failed are in no handle: what a newer run wrote instead takes nothing from its count."""
    old = await world.seeded(2)
    new = await world.seeded(2, run_id="r2")
    for dataset_id, run_id in ((new, "r2"), (old, "r1")):
        await world.settling.claim_pages(dataset_id)
        await world.run_page(dataset_id, 0, run_id, RowState.FAILED)
        await world.run_page(dataset_id, 1, run_id)
    assert all(row.superseded for row in (await world.rows(old)).values())
    assert await world.settling.end_dataset(old) is not None
    ((_, outcome),) = (await world.runs.poll("r1", 1)).resolved
    half = LIMITS.page_rows
    assert {name: outcome["ok"][name] for name in ("completed", "failed", "superseded")} == {
        "completed": half,
        "failed": half,
        "superseded": half,
    }


async def test_a_dataset_without_one_good_row_fails_its_wait(world: StoresWorld) -> None:
    dataset_id = await world.seeded(1)
    await world.settling.claim_pages(dataset_id)
    await world.run_page(dataset_id, 0, state=RowState.FAILED)
    ended = await world.settling.end_dataset(dataset_id)
    assert ended is not None
    assert not ended.run_waits
    assert await world.dataset_state(dataset_id) is DatasetState.FAILED
    ((_, outcome),) = (await world.runs.poll("r1", 1)).resolved
    assert outcome["error"]["code"] == "all_rows_failed"
    assert outcome["error"]["type"] == "AllRowsFailedError"


async def test_an_empty_dataset_ends(world: StoresWorld) -> None:
    dataset_id = await world.seeded(0)
    assert await world.settling.stale_datasets() == [dataset_id]
    assert await world.settling.end_dataset(dataset_id) is not None
    assert await world.dataset_state(dataset_id) is DatasetState.SETTLED


async def test_sweeps_see_what_a_crashed_publisher_left(world: StoresWorld) -> None:
    dataset_id = await world.seeded(3)
    assert await world.settling.stale_datasets() == [dataset_id]
    await world.settling.claim_pages(dataset_id)
    assert sorted(await world.settling.stale_pages(EPOCH, queue_empty=False)) == [
        ("r1", dataset_id, 0),
        ("r1", dataset_id, 1),
    ]
    await world.due(dataset_id, 0)
    assert await world.settling.stale_pages(EPOCH, queue_empty=False) == [("r1", dataset_id, 1)]


async def test_a_sweep_has_its_turn(world: StoresWorld) -> None:
    async with world.settling.sweep_turn("pages") as ours:
        assert ours
    async with world.settling.sweep_turn("pages") as ours:
        assert ours


@pytest.mark.parametrize("world", [pytest.param("postgres", marks=pytest.mark.servers)], indirect=True)
async def test_an_ended_dataset_whose_last_page_settles_by_itself_is_wound_down(
    world: StoresWorld, contract_database: str
) -> None:
    """Its run is cancelled while its last slices are held; they end in their own way. Nothing is left to wind down."""
    dataset_id = await world.seeded(1)
    await world.settling.claim_pages(dataset_id)
    taken = [await world.taken(dataset_id, 0, n) for n in await world.due(dataset_id, 0)]
    await world.runs.cancel("r1")
    winding = b"select winding from datasets"
    with psycopg.connect(contract_database, autocommit=True) as connection:
        assert connection.execute(winding).fetchall() == [(True,)]
        for one in taken:
            await world.flush(one)
        assert await world.settling.settle_page(dataset_id, 0)
        assert connection.execute(winding).fetchall() == [(False,)]
