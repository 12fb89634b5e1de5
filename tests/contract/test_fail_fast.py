"""Contract of fail-fast: one failed row ends its dataset, across slices and processes, whoever dies."""

from dataclasses import replace

import psycopg
import pytest

from runtime.errors import AttemptLostError
from runtime.model.dataset import FAIL_FAST, DatasetState, NewDataset
from runtime.model.row import RowState
from runtime.model.row_wait import RowWait, WaitKind
from runtime.model.slice import TakenSlice
from runtime.ports import RowWrite, RowWriteAnswer, SliceRows
from runtime.postgres_store.named import load
from tests.contract.stores_world import EPOCH, LIMITS, StoresWorld, finished, waiting


async def fail_fast(world: StoresWorld, pages: int, *, is_seeded: bool = True) -> int:
    await world.held_run()
    new = NewDataset(
        run_id="r1", key="d", namespace="sheet", columns=("c",), source_hash="h", on_row_error=FAIL_FAST
    )
    dataset_id = (await world.datasets.open(new, 1, "dataset:d")).dataset_id
    for page in range(pages):
        first = page * LIMITS.page_rows
        await world.seed(dataset_id, page, [f"k{first + n}" for n in range(LIMITS.page_rows)])
    if is_seeded:
        await world.datasets.finish_seeding(dataset_id, 1)
    await world.settling.claim_pages(dataset_id)
    for page in range(min(pages, LIMITS.pages_in_flight)):
        await world.due(dataset_id, page)
    return dataset_id


async def write(
    world: StoresWorld, taken: TakenSlice, *states: RowState, final: bool = False, session_id: str = "s1"
) -> RowWriteAnswer:
    rows = tuple(
        finished(row.position, row.row_key, state) for row, state in zip(taken.rows, states, strict=False)
    )
    part = SliceRows(id=taken.id, fence=taken.fence, facts=taken.facts, rows=rows, final=final)
    return await world.slices.flush(RowWrite(session_id=session_id, slices=(part,)))


async def states(world: StoresWorld, dataset_id: int) -> list[str]:
    return [look.state.value for _, look in sorted((await world.rows(dataset_id)).items())]


async def test_a_failed_row_cancels_what_has_not_begun(world: StoresWorld) -> None:
    dataset_id = await fail_fast(world, 4)
    first, other = await world.taken(dataset_id, 0, 0), await world.taken(dataset_id, 1, 0)
    answer = await write(world, first, RowState.COMPLETED, RowState.FAILED, final=True)
    assert (answer.done, answer.failing) == ({first.id}, {dataset_id})
    assert await world.dataset_state(dataset_id) is DatasetState.FAILING
    assert await world.take(dataset_id, 1, 1) is None, "nothing of it begins any more"
    assert await world.settling.claim_pages(dataset_id) == []
    await world.settling.settle_page(dataset_id, 0)
    assert await world.settling.end_dataset(dataset_id) is None, "a slice of page 1 is still held"
    told = await write(world, other, RowState.COMPLETED)
    assert told.failing == {dataset_id}, "its holder learns it from its next flush"
    rest = replace(other, rows=other.rows[1:])
    assert (await write(world, rest, RowState.CANCELLED, final=True)).done == {other.id}
    await world.settling.settle_page(dataset_id, 1)
    ended = await world.settling.end_dataset(dataset_id)
    assert ended is not None
    assert await world.dataset_state(dataset_id) is DatasetState.FAILED
    assert await states(world, dataset_id) == [
        *("completed", "failed", "cancelled", "cancelled"),
        *("completed", *["cancelled"] * 11),
    ]
    assert set(await world.sheet("org", "play", "sheet")) == {"k0", "k1", "k4"}


async def test_the_body_learns_which_row_it_was(world: StoresWorld) -> None:
    dataset_id = await fail_fast(world, 1)
    taken = await world.taken(dataset_id, 0, 0)
    await write(world, taken, RowState.COMPLETED, RowState.FAILED, final=True)
    await world.settling.settle_page(dataset_id, 0)
    assert await world.settling.stale_datasets() == [dataset_id]
    assert await world.settling.end_dataset(dataset_id) is not None
    ((key, outcome),) = (await world.runs.poll("r1", 1)).resolved
    error = outcome["error"]
    assert key == "dataset:d"
    assert (error["type"], error["code"], error["row_key"]) == ("RowFailedError", "row_failed", "k1")
    assert (error["completed"], error["failed"], error["cancelled"]) == (1, 1, 2)
    assert await world.log_messages("r1") == ['dataset "d": row "k1" failed: no k1']


async def test_a_holder_that_dies_is_swept(world: StoresWorld) -> None:
    dataset_id = await fail_fast(world, 2)
    await world.session("s2")
    theirs = await world.taken(dataset_id, 1, 0, "s2")
    ours = await world.taken(dataset_id, 0, 0)
    await write(world, theirs, RowState.COMPLETED, session_id="s2")
    await write(world, ours, RowState.FAILED, RowState.CANCELLED, final=True)
    await world.settling.settle_page(dataset_id, 0)
    await world.kill("s2")
    stale = await world.settling.stale_pages(EPOCH, queue_empty=False)
    assert [page for _, _, page in stale] == [1]
    for _, _, page in stale:
        await world.settling.settle_page(dataset_id, page)
    assert await world.settling.end_dataset(dataset_id) is not None
    assert await states(world, dataset_id) == ["failed", *["cancelled"] * 3, "completed", *["cancelled"] * 3]
    assert await world.settling.stale_pages(EPOCH, queue_empty=False) == []


async def test_rows_that_wait_are_cancelled_and_not_woken(world: StoresWorld) -> None:
    dataset_id = await fail_fast(world, 1)
    first, second = await world.taken(dataset_id, 0, 0), await world.taken(dataset_id, 0, 1)
    wait = RowWait(kind=WaitKind.LANE, due_ms=1_000.0, detail="far")
    rows = (finished(2, "k2"), waiting(3, "k3", wait))
    part = SliceRows(id=second.id, fence=second.fence, facts=second.facts, rows=rows, final=True)
    await world.slices.flush(RowWrite(session_id="s1", slices=(part,)))
    await write(world, first, RowState.FAILED, RowState.CANCELLED, final=True)
    await world.age(2)
    assert await world.settling.wake_rows() == []
    await world.settling.settle_page(dataset_id, 0)
    assert await world.settling.end_dataset(dataset_id) is not None
    assert await states(world, dataset_id) == ["failed", "cancelled", "completed", "cancelled"]


async def test_a_row_may_fail_while_its_dataset_is_seeded(world: StoresWorld) -> None:
    dataset_id = await fail_fast(world, 2, is_seeded=False)
    taken = await world.taken(dataset_id, 0, 0)
    await write(world, taken, RowState.FAILED, RowState.COMPLETED, final=True)
    try:
        await world.seed(dataset_id, 2, ["x"])
    except AttemptLostError:
        pass
    else:
        raise AssertionError("a failing dataset was seeded on")
    for page in (0, 1):
        await world.settling.settle_page(dataset_id, page)
    assert await world.settling.end_dataset(dataset_id) is not None
    assert await states(world, dataset_id) == ["failed", "completed", *["cancelled"] * 6]


async def test_a_cancelled_run_wins_over_a_failing_dataset(world: StoresWorld) -> None:
    dataset_id = await fail_fast(world, 1)
    first, second = await world.taken(dataset_id, 0, 0), await world.taken(dataset_id, 0, 1)
    await write(world, first, RowState.FAILED, RowState.COMPLETED, final=True)
    await world.runs.cancel("r1")
    answer = await write(world, second, RowState.COMPLETED)
    assert answer.ended == {second.id}
    await world.settling.settle_page(dataset_id, 0)
    assert await world.settling.end_dataset(dataset_id) is None
    assert await world.dataset_state(dataset_id) is DatasetState.CANCELLED
    assert await states(world, dataset_id) == ["failed", "completed", "completed", "cancelled"]
    assert await world.settling.stale_pages(EPOCH, queue_empty=False) == []


async def test_isolated_failures_are_named_and_counted_in_the_log(world: StoresWorld) -> None:
    dataset_id = await world.seeded(2)
    await world.settling.claim_pages(dataset_id)
    await world.run_page(dataset_id, 0, state=RowState.FAILED)
    await world.run_page(dataset_id, 1)
    assert await world.settling.end_dataset(dataset_id) is not None
    assert await world.log_messages("r1") == [
        *(f'dataset "d": row "k{n}" failed: no k{n}' for n in range(3)),
        'dataset "d": 1 more rows failed',
    ]


@pytest.mark.parametrize("world", [pytest.param("postgres", marks=pytest.mark.servers)], indirect=True)
async def test_rows_that_began_to_wait_while_their_page_was_wound_down_are_cancelled_too(
    world: StoresWorld, contract_database: str
) -> None:
    """Their holder had not heard yet: it ends its slice between the statement that cancels rows and the one that
    settles pages. The page stays, and the next look cancels what waits."""
    dataset_id = await fail_fast(world, 2)
    first, theirs = await world.taken(dataset_id, 0, 0), await world.taken(dataset_id, 1, 0)
    await write(world, first, RowState.COMPLETED, RowState.FAILED, final=True)
    values = {"dataset_id": dataset_id, "pages": [1]}
    wind = load("winding")
    with psycopg.connect(contract_database) as sweep:
        for name in ("close_slices", "cancel_rows"):
            sweep.execute(wind[name], values)
        wait = RowWait(kind=WaitKind.SLEEP, due_ms=60_000.0)
        resting = tuple(waiting(row.position, row.row_key, wait) for row in theirs.rows)
        part = SliceRows(id=theirs.id, fence=theirs.fence, facts=theirs.facts, rows=resting, final=True)
        await world.slices.flush(RowWrite(session_id="s1", slices=(part,)))
        for name in ("cancel_boundaries", "drop_waits", "settle_pages"):
            sweep.execute(wind[name], values)
    await world.settling.settle_page(dataset_id, 0)
    await world.settling.settle_page(dataset_id, 1)
    assert await world.settling.end_dataset(dataset_id) is not None
    assert (await states(world, dataset_id))[2:] == ["cancelled"] * 6
