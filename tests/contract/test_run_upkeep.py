"""Contract of what runs are kept by: deadlines in active time, pinned sources, and hand-backs that come later."""

from runtime.model.run import NewRun
from tests.contract.stores_world import LIMITS, StoresWorld


async def start(world: StoresWorld, **options: object) -> None:
    await world.runs.insert(NewRun(run_id="r1", org_id="org", play="p", input=None, options=dict(options)))


async def test_the_first_source_that_is_told_stands(world: StoresWorld) -> None:
    await world.held_run()
    assert await world.runs.pin("r1", "a") == "a"
    assert await world.runs.pin("r1", "b") == "a"


async def test_only_active_time_counts_against_a_deadline(world: StoresWorld) -> None:
    await start(world, deadline_s=12.0)
    assert await world.runs.overdue() == []
    await world.age(5)
    assert await world.runs.overdue() == []  # queued: nobody holds it
    claimed = await world.runs.claim("r1", await world.session())
    assert claimed is not None
    for _ in range(2):
        await world.sessions.renew("s1", 1_000)
        await world.age(5)
        assert await world.runs.overdue() == []
    await world.age(5)
    (overdue,) = await world.runs.overdue()
    assert overdue.run_id == "r1"
    assert 14.9 < overdue.active_s < 16
    assert await world.runs.fail("r1", {"code": "run_deadline"})
    assert await world.runs.overdue() == []


async def test_a_pause_of_the_sweeps_counts_as_two_of_them_at_most(world: StoresWorld) -> None:
    await start(world, deadline_s=1_000.0)
    await world.runs.claim("r1", await world.session())
    await world.runs.overdue()
    await world.age(3_600)
    await world.sessions.renew("s1", 1_000)
    assert await world.runs.overdue() == []


async def test_a_slice_that_is_held_is_active_time_of_its_run(world: StoresWorld) -> None:
    dataset_id = await world.seeded(1)
    await world.runs.suspend("r1", 1, 0)
    (first, *_) = await world.settling.claim_pages(dataset_id)
    await world.due(dataset_id, first)
    assert await world.take(dataset_id, first, 0) is not None
    assert await world.runs.overdue() == []  # it has no deadline


async def test_no_version_is_counted_until_there_is_progress(world: StoresWorld) -> None:
    await world.held_run()
    assert await world.runs.unavailable("r1") == 0.0
    await world.age(60)
    assert 59.9 < await world.runs.unavailable("r1") < 65
    dataset_id = (await world.opened()).dataset_id
    await world.seed(dataset_id, 0, ["a", "b"])
    await world.settling.claim_pages(dataset_id)
    await world.run_page(dataset_id, 0)
    assert await world.runs.unavailable("r1") == 0.0
    await world.age(LIMITS.version_forget_s + 60)
    assert await world.runs.unavailable("r1") == 0.0


async def test_a_run_handed_back_is_named_only_after_its_delay(world: StoresWorld) -> None:
    await world.held_run()
    await world.runs.release("r1", 1, after_s=20)
    await world.age(15)
    assert await world.settling.due_runs() == []
    await world.age(15)
    assert await world.settling.due_runs() == ["r1"]


async def test_a_slice_handed_back_is_sent_only_after_its_delay(world: StoresWorld) -> None:
    dataset_id = await world.seeded(1)
    await world.settling.claim_pages(dataset_id)
    numbers = await world.due(dataset_id, 0)
    taken = await world.taken(dataset_id, 0, numbers[0])
    await world.slices.release([(taken.id, taken.fence)], after_s=20)
    assert await world.due(dataset_id, 0) == []
    await world.age(15)
    assert await world.due(dataset_id, 0, queue_empty=True) == [numbers[1]]
    await world.age(15)
    assert numbers[0] in await world.due(dataset_id, 0, queue_empty=True)
