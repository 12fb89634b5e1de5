"""Contract of rows that wait: what they hold up, what wakes them, and that each still ends exactly once."""

import pytest

from runtime.model.dataset import DatasetState
from runtime.model.row import RowState
from runtime.model.row_wait import RowWait, WaitKind, WokenPage
from runtime.model.run import RunState
from runtime.model.slice import TakenSlice
from runtime.ports import RowWrite, RowWriteAnswer, SliceRows
from tests.contract.stores_world import EPOCH, LIMITS, StoresWorld, finished, waiting

FAR = RowWait(kind=WaitKind.LANE, due_ms=60_000.0, detail="lane fakeprov")
BUDGET = RowWait(kind=WaitKind.BUDGET)
SLEEP = RowWait(kind=WaitKind.SLEEP, due_ms=60_000.0)


async def wait_all(
    world: StoresWorld, taken: TakenSlice, wait: RowWait = FAR, *, final: bool = True, rows: int | None = None
) -> RowWriteAnswer:
    part = SliceRows(
        id=taken.id,
        fence=taken.fence,
        facts=taken.facts,
        rows=tuple(waiting(row.position, row.row_key, wait) for row in taken.rows[:rows]),
        final=final,
    )
    return await world.slices.flush(RowWrite(session_id="s1", slices=(part,)))


async def page_that_waits(world: StoresWorld, wait: RowWait = FAR, pages: int = 1) -> int:
    """A dataset whose first page is out and has nothing but rows that wait; its window holds two pages."""
    dataset_id = await world.seeded(pages)
    await world.settling.claim_pages(dataset_id)
    for number in await world.due(dataset_id, 0):
        taken = await world.taken(dataset_id, 0, number)
        assert taken.id in (await wait_all(world, taken, wait)).done
    assert not await world.settling.settle_page(dataset_id, 0)
    return dataset_id


async def states(world: StoresWorld, dataset_id: int, page: int = 0) -> set[RowState]:
    first = page * LIMITS.page_rows
    rows = await world.rows(dataset_id)
    return {rows[at].state for at in range(first, first + LIMITS.page_rows)}


async def test_a_waiting_row_has_no_value_and_no_count_and_its_slice_is_done(world: StoresWorld) -> None:
    dataset_id = await page_that_waits(world)
    assert await states(world, dataset_id) == {RowState.WAITING}
    assert await world.sheet("org", "play", "sheet") == {}
    assert await world.due(dataset_id, 0) == []
    assert await world.settling.stale_pages(EPOCH, queue_empty=False) == []


async def test_a_row_wakes_when_its_time_has_come_and_then_ends(world: StoresWorld) -> None:
    dataset_id = await page_that_waits(world)
    assert await world.settling.wake_rows() == []
    await world.age(61)
    await world.sessions.renew("s1", 60)
    assert await world.settling.wake_rows() == [WokenPage(run_id="r1", dataset_id=dataset_id, page=0)]
    assert await world.settling.wake_rows() == []
    assert await states(world, dataset_id) == {RowState.PENDING}
    assert not await world.settling.settle_page(dataset_id, 0)
    await world.run_page(dataset_id, 0)
    assert await states(world, dataset_id) == {RowState.COMPLETED}
    assert await world.settling.end_dataset(dataset_id) is not None


async def test_a_row_may_wait_again_and_again(world: StoresWorld) -> None:
    dataset_id = await page_that_waits(world)
    for _ in range(3):
        await world.age(61)
        await world.settling.wake_rows()
        for number in await world.due(dataset_id, 0):
            await wait_all(world, await world.taken(dataset_id, 0, number))
        assert await states(world, dataset_id) == {RowState.WAITING}


async def test_a_live_holder_finds_a_woken_row_at_its_end_and_gives_the_slice_back(
    world: StoresWorld,
) -> None:
    dataset_id = await world.seeded(1)
    await world.settling.claim_pages(dataset_id)
    await world.due(dataset_id, 0)
    taken = await world.taken(dataset_id, 0, 0)
    await wait_all(world, taken, final=False, rows=1)
    await world.age(61)
    assert len(await world.settling.wake_rows()) == 1
    first, second = taken.rows
    part = SliceRows(
        id=taken.id,
        fence=taken.fence,
        facts=taken.facts,
        rows=(finished(second.position, second.row_key),),
        final=True,
    )
    answer = await world.slices.flush(RowWrite(session_id="s1", slices=(part,)))
    assert (answer.done, answer.lost, answer.ended) == (frozenset(),) * 3
    await world.slices.release([(taken.id, taken.fence)])
    assert 0 in await world.due(dataset_id, 0)
    assert (await world.taken(dataset_id, 0, 0)).rows == (first,)


async def test_pages_that_wait_for_a_lane_stay_in_the_window(world: StoresWorld) -> None:
    dataset_id = await page_that_waits(world, pages=4)
    assert await world.settling.claim_pages(dataset_id) == []


async def test_pages_that_sleep_leave_the_window_and_come_back_beyond_it(world: StoresWorld) -> None:
    dataset_id = await page_that_waits(world, SLEEP, pages=4)
    assert await world.settling.claim_pages(dataset_id) == [2]
    assert await world.settling.stale_datasets() == []
    await world.age(61)
    await world.sessions.renew("s1", 60)
    await world.settling.wake_rows()
    assert await world.settling.claim_pages(dataset_id) == []
    await world.run_page(dataset_id, 0)
    assert await world.settling.claim_pages(dataset_id) == []
    for page in (1, 2):
        await world.run_page(dataset_id, page)
    assert await world.settling.claim_pages(dataset_id) == [3]
    await world.run_page(dataset_id, 3)
    assert await world.settling.end_dataset(dataset_id) is not None


async def test_a_page_with_one_row_at_a_lane_is_not_parked(world: StoresWorld) -> None:
    dataset_id = await world.seeded(4)
    await world.settling.claim_pages(dataset_id)
    for number, wait in zip(await world.due(dataset_id, 0), (SLEEP, FAR), strict=True):
        await wait_all(world, await world.taken(dataset_id, 0, number), wait)
    assert not await world.settling.settle_page(dataset_id, 0)
    assert await world.settling.claim_pages(dataset_id) == []


async def test_a_page_whose_last_slice_crashed_before_parking_is_swept(world: StoresWorld) -> None:
    dataset_id = await world.seeded(1)
    await world.settling.claim_pages(dataset_id)
    for number in await world.due(dataset_id, 0):
        await wait_all(world, await world.taken(dataset_id, 0, number), SLEEP)
    assert await world.settling.stale_pages(EPOCH, queue_empty=False) == [("r1", dataset_id, 0)]
    await world.settling.settle_page(dataset_id, 0)
    assert await world.settling.stale_pages(EPOCH, queue_empty=False) == []


async def test_rows_that_wait_for_budget_are_woken_by_it_alone(world: StoresWorld) -> None:
    dataset_id = await page_that_waits(world, BUDGET)
    await world.age(100_000)
    await world.sessions.renew("s1", 60)
    assert await world.settling.wake_rows() == []
    assert await world.settling.wake_budget("another run") == []
    assert await world.settling.wake_budget("r1") == [WokenPage(run_id="r1", dataset_id=dataset_id, page=0)]
    assert await world.settling.wake_budget("r1") == []
    await world.run_page(dataset_id, 0)
    assert await states(world, dataset_id) == {RowState.COMPLETED}


@pytest.mark.parametrize("wait", [FAR, SLEEP], ids=["lane", "sleep"])
async def test_the_end_of_a_run_ends_rows_that_wait(world: StoresWorld, wait: RowWait) -> None:
    dataset_id = await page_that_waits(world, wait)
    assert await world.runs.cancel("r1") is RunState.CANCELLED
    assert await states(world, dataset_id) == {RowState.CANCELLED}
    await world.age(61)
    assert await world.settling.wake_rows() == []
    assert await world.dataset_state(dataset_id) is DatasetState.CANCELLED


async def test_a_holder_that_hears_of_the_end_leaves_no_row_open(world: StoresWorld) -> None:
    dataset_id = await world.seeded(1)
    await world.settling.claim_pages(dataset_id)
    await world.due(dataset_id, 0)
    taken = await world.taken(dataset_id, 0, 0)
    await wait_all(world, taken, final=False, rows=1)
    await world.runs.cancel("r1")
    answer = await world.flush(taken, rows=0, final=False)
    assert answer.ended == {taken.id}
    await world.settling.settle_page(dataset_id, 0)
    assert await states(world, dataset_id) == {RowState.CANCELLED}
