"""Settling and sweeping over the stores in memory, with a publisher that only remembers."""

import asyncio
from collections.abc import Sequence

import pytest

from runtime.engine.settling import Settling
from runtime.engine.sweeping import Sweeps
from runtime.errors import ServiceUnreachableError
from runtime.faults import no_fault
from runtime.model.call import Call
from runtime.model.page import PageOut
from runtime.model.row import RowState
from runtime.model.run import NewRun
from runtime.ports import Fault
from tests.contract.memory_world import memory_world
from tests.contract.stores_world import LIMITS, StoresWorld


class Published:
    """A publisher that keeps what it was given."""

    def __init__(self) -> None:
        self.pages: list[PageOut] = []
        self.resumed: list[str] = []

    async def resume(self, run_ids: Sequence[str]) -> None:
        self.resumed.extend(run_ids)

    async def pages_out(self, pages: Sequence[PageOut]) -> None:
        self.pages.extend(pages)

    async def post(self, lane: str, calls: Sequence[Call]) -> None: ...

    def numbers(self) -> list[int]:
        numbers = [page.page for page in self.pages]
        self.pages.clear()
        return numbers


class Epoch:
    """Redis as far as settling knows it."""

    def __init__(self) -> None:
        self.value = "epoch-1"
        self.away = False
        self.empty = False

    async def epoch(self) -> str:
        if self.away:
            raise ServiceUnreachableError("Redis does not answer")
        return self.value

    async def queue_empty(self, queue: str) -> bool:
        assert queue == "rows"
        return self.empty


class Stage:
    def __init__(self, fault: Fault = no_fault) -> None:
        self.world: StoresWorld = memory_world()
        self.published = Published()
        self.epoch = Epoch()
        self.settling = Settling(self.world.settling, self.published, self.epoch, fault)
        self.sweeps = Sweeps(
            sessions=self.world.sessions,
            store=self.world.settling,
            settling=self.settling,
            publisher=self.published,
            epoch=self.epoch,
            limits=LIMITS,
        )

    async def work(self, page: PageOut, state: RowState = RowState.COMPLETED) -> None:
        """A row worker that runs a page's slices and settles after each."""
        for number in page.slices:
            taken = await self.world.taken(page.dataset_id, page.page, number)
            await self.world.flush(taken, state=state)
            await self.settling.settle(page.run_id, page.dataset_id, page.page)


@pytest.fixture
def stage() -> Stage:
    return Stage()


async def test_a_dataset_runs_to_its_end_and_wakes_its_run(stage: Stage) -> None:
    dataset_id = await stage.world.seeded(5)
    await stage.world.runs.suspend("r1", 1, 0)
    await stage.settling.advance(dataset_id)
    sent = []
    while stage.published.pages:
        page = stage.published.pages.pop(0)
        sent.append(page.page)
        await stage.work(page)
    assert sent == [0, 1, 2, 3, 4]
    assert stage.published.resumed == ["r1"]
    assert {row.state for row in (await stage.world.rows(dataset_id)).values()} == {RowState.COMPLETED}


async def test_repeating_any_step_publishes_nothing_twice(stage: Stage) -> None:
    dataset_id = await stage.world.seeded(3)
    for _ in range(3):
        await stage.settling.advance(dataset_id)
        await stage.settling.settle("r1", dataset_id, 0)
        await stage.settling.settle("r1", dataset_id, 2)
    assert stage.published.numbers() == [0, 1]


async def test_pages_without_rows_are_settled_on_the_way(stage: Stage) -> None:
    await stage.world.held_run()
    dataset_id = (await stage.world.opened()).dataset_id
    await stage.world.seed(dataset_id, 0, ["a"])
    for page in range(1, 9):
        await stage.world.seed(dataset_id, page, ["a"])
    await stage.world.seed(dataset_id, 9, ["b"])
    await stage.world.datasets.finish_seeding(dataset_id, 1)
    await stage.settling.advance(dataset_id)
    assert stage.published.numbers() == [0, 9]


async def test_an_empty_dataset_ends_by_advancing(stage: Stage) -> None:
    dataset_id = await stage.world.seeded(0)
    await stage.world.runs.suspend("r1", 1, 0)
    await stage.settling.advance(dataset_id)
    assert stage.published.resumed == ["r1"]
    await stage.settling.advance(dataset_id + 100)


async def test_without_redis_pages_settle_and_are_sent_later(stage: Stage) -> None:
    dataset_id = await stage.world.seeded(1)
    stage.epoch.away = True
    await stage.settling.advance(dataset_id)
    assert stage.published.numbers() == []
    assert await stage.sweeps.once() == {"sessions": 0, "timers": 0, "waits": 0, "datasets": 0, "runs": 0}
    stage.epoch.away = False
    assert (await stage.sweeps.once())["pages"] == 1
    assert stage.published.numbers() == [0]


async def test_a_crash_between_decision_and_publish_is_repaired_by_a_sweep() -> None:
    async def crash(point: str) -> None:
        if point == "settle.after_claim":
            raise RuntimeError(point)

    crashed = Stage(crash)
    dataset_id = await crashed.world.seeded(1)
    with pytest.raises(RuntimeError):
        await crashed.settling.advance(dataset_id)
    repaired = Settling(crashed.world.settling, crashed.published, crashed.epoch, no_fault)
    for run_id, dataset, page in await crashed.world.settling.stale_pages("epoch-1", queue_empty=False):
        await repaired.settle(run_id, dataset, page)
    assert crashed.published.numbers() == [0]


async def test_lost_redis_data_sends_again_what_was_out(stage: Stage) -> None:
    dataset_id = await stage.world.seeded(1)
    await stage.settling.advance(dataset_id)
    assert stage.published.numbers() == [0]
    await stage.sweeps.once()
    assert stage.published.numbers() == []
    stage.epoch.value = "epoch-2"
    await stage.sweeps.once()
    assert stage.published.numbers() == [0]


async def test_a_dead_worker_delays_its_rows_by_one_sweep_after_its_time(stage: Stage) -> None:
    dataset_id = await stage.world.seeded(1)
    await stage.settling.advance(dataset_id)
    stage.published.numbers()
    await stage.world.taken(dataset_id, 0, 0)
    await stage.sweeps.once()
    assert stage.published.numbers() == []
    await stage.world.age(1)
    did = await stage.sweeps.once()
    assert did["sessions"] == 1
    assert [(page.page, page.slices) for page in stage.published.pages] == [(0, (0,))]


async def test_runs_that_nobody_holds_are_resumed(stage: Stage) -> None:
    await stage.world.runs.insert(NewRun(run_id="r9", org_id="org", play="p", input=None))
    await stage.world.age(10)
    await stage.sweeps.once()
    await stage.sweeps.once()
    assert stage.published.resumed == ["r9"]


async def test_a_sweep_that_fails_stops_neither_the_others_nor_the_loop(stage: Stage) -> None:
    async def broken() -> list[str]:
        raise ServiceUnreachableError("Postgres does not answer")

    stage.world.sessions.end_expired = broken
    await stage.world.runs.insert(NewRun(run_id="r9", org_id="org", play="p", input=None))
    await stage.world.age(10)
    assert set(await stage.sweeps.once()) == {"timers", "waits", "pages", "datasets", "runs"}
    assert stage.published.resumed == ["r9"]


async def test_the_sweeping_task_ends_when_stopped(stage: Stage) -> None:
    stage.sweeps.start()
    stage.sweeps.start()
    (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "sweeps"]
    stage.sweeps.stop()
    with pytest.raises(asyncio.CancelledError):
        await task
