"""Contract of SliceStore."""

from runtime.model.call import Usage
from runtime.model.row import RowState
from runtime.model.slice import SliceId
from runtime.ports import LogLine, RowWrite, SliceRows
from tests.contract.stores_world import StoresWorld, finished


async def out(world: StoresWorld, pages: int = 1) -> int:
    dataset_id = await world.seeded(pages)
    await world.settling.claim_pages(dataset_id)
    return dataset_id


async def test_a_slice_is_taken_with_its_open_rows(world: StoresWorld) -> None:
    dataset_id = await out(world)
    taken = await world.taken(dataset_id, 0, 1)
    assert taken.fence == 1
    assert [(row.position, row.row_key, row.input) for row in taken.rows] == [
        (2, "k2", {"k": "k2"}),
        (3, "k3", {"k": "k3"}),
    ]
    assert (taken.facts.dataset_id, taken.facts.run_id, taken.facts.columns) == (dataset_id, "r1", ("c",))


async def test_a_live_holder_keeps_its_slice_also_against_itself(world: StoresWorld) -> None:
    dataset_id = await out(world)
    await world.taken(dataset_id, 0, 0)
    await world.session("s2")
    assert await world.take(dataset_id, 0, 0, "s1") is None
    assert await world.take(dataset_id, 0, 0, "s2") is None


async def test_what_cannot_be_taken(world: StoresWorld) -> None:
    dataset_id = await out(world, 3)
    await world.session("s2")
    assert await world.take(dataset_id, 2, 0) is None, "a page that isn't claimed"
    assert await world.take(dataset_id, 0, 9) is None, "a slice that isn't there"
    assert await world.take(dataset_id + 1_000, 0, 0) is None, "a dataset that isn't there"
    assert await world.take(dataset_id, 0, 0, run_id="other") is None, "another run's name"
    assert await world.take(dataset_id, 0, 0, "never opened") is None, "no live session"
    await world.sessions.close("s2")
    assert await world.take(dataset_id, 0, 0, "s2") is None, "a session that ended"


async def test_written_rows_end_and_their_values_are_in_the_sheet(world: StoresWorld) -> None:
    dataset_id = await out(world)
    taken = await world.taken(dataset_id, 0, 0)
    usage = Usage(run_id="r1", tool="t", items=2, batches=1, capacity=10)
    line = LogLine(scope="row:0", n=0, level="info", message="hello", fields={})
    answer = await world.flush(taken, usage=(usage,), logs=(("r1", line),))
    assert answer.done == {taken.id}
    assert not answer.lost
    assert not answer.ended
    rows = await world.rows(dataset_id)
    assert [rows[at].state for at in range(4)] == [RowState.COMPLETED] * 2 + [RowState.PENDING] * 2
    assert await world.sheet("org", "play", "sheet") == {"k0": {"c": "v:k0"}, "k1": {"c": "v:k1"}}
    assert await world.usage_items("r1") == 2
    assert await world.log_messages("r1") == ["hello"]
    assert await world.take(dataset_id, 0, 0) is None


async def test_a_repeated_write_changes_nothing(world: StoresWorld) -> None:
    dataset_id = await out(world)
    taken = await world.taken(dataset_id, 0, 0)
    first = await world.flush(taken)
    assert await world.flush(taken, state=RowState.FAILED) == first
    assert (await world.rows(dataset_id))[0].state is RowState.COMPLETED


async def test_a_failed_row_is_in_the_sheet_too(world: StoresWorld) -> None:
    dataset_id = await out(world)
    await world.flush(await world.taken(dataset_id, 0, 0), state=RowState.FAILED)
    assert (await world.sheet("org", "play", "sheet"))["k0"] == {"c": None}


async def test_a_slice_with_open_rows_is_not_done(world: StoresWorld) -> None:
    dataset_id = await out(world)
    taken = await world.taken(dataset_id, 0, 0)
    assert (await world.flush(taken, rows=1)).done == set()
    assert (await world.flush(taken, rows=2, final=False)).done == set()
    assert (await world.flush(taken, rows=0)).done == {taken.id}


async def test_a_newer_fence_wins(world: StoresWorld) -> None:
    dataset_id = await out(world)
    old = await world.taken(dataset_id, 0, 0)
    await world.session("s2")
    await world.kill("s1")
    new = await world.taken(dataset_id, 0, 0, "s2")
    assert new.fence == old.fence + 1
    answer = await world.flush(old)
    assert answer.lost == {old.id}
    assert answer.done == set()
    assert (await world.rows(dataset_id))[0].state is RowState.PENDING
    await world.slices.release([(old.id, old.fence)])
    assert (await world.flush(new, "s2")).done == {new.id}


async def test_a_released_slice_is_lost_to_its_old_holder(world: StoresWorld) -> None:
    dataset_id = await out(world)
    taken = await world.taken(dataset_id, 0, 0)
    await world.flush(taken, rows=1, final=False)
    await world.slices.release([(taken.id, taken.fence)])
    assert (await world.flush(taken)).lost == {taken.id}
    again = await world.taken(dataset_id, 0, 0)
    assert [row.position for row in again.rows] == [1]


async def test_an_older_run_never_overwrites_a_newer_one(world: StoresWorld) -> None:
    old = await out(world)
    await world.held_run("r2")
    new = (await world.opened("r2")).dataset_id
    await world.seed(new, 0, ["k0", "z"], "r2")
    await world.settling.claim_pages(new)
    await world.flush(await world.taken(new, 0, 0, run_id="r2"), state=RowState.FAILED)
    await world.flush(await world.taken(old, 0, 0))
    rows = await world.rows(old)
    assert rows[0].state is RowState.COMPLETED
    assert [rows[0].superseded, rows[1].superseded] == [True, False]
    assert await world.sheet("org", "play", "sheet") == {
        "k0": {"c": None},
        "k1": {"c": "v:k1"},
        "z": {"c": None},
    }


async def test_two_runs_may_write_the_same_key_in_one_write(world: StoresWorld) -> None:
    old = await out(world)
    await world.held_run("r2")
    new = (await world.opened("r2")).dataset_id
    await world.seed(new, 0, ["k1"], "r2")
    await world.settling.claim_pages(new)
    parts = []
    for taken in (await world.taken(new, 0, 0, run_id="r2"), await world.taken(old, 0, 0)):
        value = taken.facts.run_id
        rows = tuple(finished(row.position, row.row_key, value=value) for row in taken.rows)
        parts.append(SliceRows(id=taken.id, fence=taken.fence, facts=taken.facts, rows=rows, final=True))
    answer = await world.slices.flush(RowWrite(session_id="s1", slices=tuple(parts)))
    assert len(answer.done) == 2
    assert (await world.sheet("org", "play", "sheet"))["k1"] == {"c": "r2:k1"}
    assert (await world.rows(old))[1].superseded


async def test_rows_outside_their_slice_are_refused(world: StoresWorld) -> None:
    dataset_id = await out(world)
    taken = await world.taken(dataset_id, 0, 0)
    stray = SliceRows(
        id=taken.id,
        fence=taken.fence,
        facts=taken.facts,
        rows=(finished(3, "k3"), finished(99, "x")),
        final=False,
    )
    await world.slices.flush(RowWrite(session_id="s1", slices=(stray,)))
    assert (await world.rows(dataset_id))[3].state is RowState.PENDING
    assert await world.sheet("org", "play", "sheet") == {}


async def test_an_unknown_slice_is_lost(world: StoresWorld) -> None:
    dataset_id = await out(world)
    taken = await world.taken(dataset_id, 0, 0)
    unknown = SliceId(dataset_id=dataset_id, page=7, slice=7)
    part = SliceRows(id=unknown, fence=1, facts=taken.facts, rows=(), final=True)
    assert (await world.slices.flush(RowWrite(session_id="s1", slices=(part,)))).lost == {unknown}
