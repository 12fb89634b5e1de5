"""Contract of crash counting: a row or body that takes its process down is found, alone, and ended."""

from runtime.model.row import RowState
from runtime.model.slice import SUSPECTS_FROM
from tests.contract.stores_world import StoresWorld


async def out(world: StoresWorld) -> int:
    dataset_id = await world.seeded(1)
    await world.settling.claim_pages(dataset_id)
    await world.due(dataset_id, 0)
    return dataset_id


async def crashes(world: StoresWorld, dataset_id: int, number: int, session_id: str) -> list[int]:
    """What a new session finds."""
    await world.session(session_id)
    return [row.crashes for row in (await world.taken(dataset_id, 0, number, session_id)).rows]


async def test_a_session_that_never_came_back_counts_against_the_rows_it_left_open(
    world: StoresWorld,
) -> None:
    dataset_id = await out(world)
    await world.flush(await world.taken(dataset_id, 0, 0), rows=1, final=False)
    await world.kill("s1")
    assert await crashes(world, dataset_id, 0, "s2") == [1]
    assert await crashes(world, dataset_id, 1, "s3") == [0, 0], "a slice that nobody held"


async def test_who_closes_its_session_or_gives_the_slice_back_has_not_crashed(world: StoresWorld) -> None:
    dataset_id = await out(world)
    await world.taken(dataset_id, 0, 0)
    await world.sessions.close("s1")
    assert await crashes(world, dataset_id, 0, "s2") == [0, 0]
    taken = await world.taken(dataset_id, 0, 1, "s2")
    await world.slices.release([(taken.id, taken.fence)])
    await world.kill("s2")
    assert await crashes(world, dataset_id, 1, "s3") == [0, 0]


async def test_after_two_crashes_every_row_is_a_slice_of_its_own(world: StoresWorld) -> None:
    dataset_id = await out(world)
    await world.taken(dataset_id, 0, 0)
    await world.kill("s1")
    assert await crashes(world, dataset_id, 0, "s2") == [1, 1]
    await world.kill("s2")
    assert await crashes(world, dataset_id, 0, "s3") == []
    empty = SUSPECTS_FROM, SUSPECTS_FROM + 1
    assert await world.due(dataset_id, 0) == list(empty)
    first = await world.taken(dataset_id, 0, empty[0], "s3")
    assert first.id.is_suspect
    assert [(row.row_key, row.crashes) for row in first.rows] == [("k0", 2)]
    await world.kill("s3")
    assert await crashes(world, dataset_id, empty[0], "s1b") == [3]
    assert await crashes(world, dataset_id, empty[1], "s1b") == [2], "who was not held is not blamed"


async def test_a_split_page_settles_when_all_its_rows_have_ended(world: StoresWorld) -> None:
    dataset_id = await out(world)
    await world.flush(await world.taken(dataset_id, 0, 1))
    for session_id in ("s1", "s2"):
        await world.session(session_id)
        await world.taken(dataset_id, 0, 0, session_id)
        await world.kill(session_id)
    await world.session("s3")
    emptied = await world.taken(dataset_id, 0, 0, "s3")
    assert emptied.id in (await world.flush(emptied, "s3")).done
    assert not await world.settling.settle_page(dataset_id, 0)
    for number in await world.due(dataset_id, 0):
        taken = await world.taken(dataset_id, 0, number, "s3")
        assert taken.id in (await world.flush(taken, "s3")).done
    assert await world.settling.settle_page(dataset_id, 0)
    assert {row.state for row in (await world.rows(dataset_id)).values()} == {RowState.COMPLETED}
    assert await world.settling.end_dataset(dataset_id) is not None


async def crashed_claim(world: StoresWorld, dead: str, session_id: str) -> int:
    """How often the run has crashed without progress, as its next holder hears."""
    await world.kill(dead)
    await world.session(session_id)
    claimed = await world.runs.claim("r1", session_id)
    assert claimed is not None
    return claimed.crashes


async def test_crashed_attempts_are_counted_until_there_is_progress(world: StoresWorld) -> None:
    dataset_id = await out(world)
    assert await crashed_claim(world, "s1", "s2") == 1
    assert await crashed_claim(world, "s2", "s3") == 2
    await world.flush(await world.taken(dataset_id, 0, 0, "s3"), "s3")
    assert await crashed_claim(world, "s3", "s4") == 1, "rows have ended since"
    assert await crashed_claim(world, "s4", "s5") == 2


async def test_a_body_given_back_has_not_crashed(world: StoresWorld) -> None:
    claimed = await world.held_run()
    await world.runs.release("r1", claimed.attempt)
    await world.kill("s1")
    await world.session("s2")
    again = await world.runs.claim("r1", "s2")
    assert again is not None
    assert again.crashes == 0
