"""A slice whose rows wait: it ends, its slot is free, and the rows go on when they are woken."""

from collections.abc import Mapping, Sequence
from typing import Any

from runtime.context.scope import current_scope
from runtime.engine.row_writer import RowWriter, SliceEnd
from runtime.engine.settling import Settling
from runtime.engine.slice_run import RowProgram, SliceRunner
from runtime.errors import RowWaitsError
from runtime.faults import no_fault
from runtime.model.page import PageOut
from runtime.model.row import RowState
from runtime.model.row_wait import RowWait, WaitKind
from runtime.model.slice import SliceId, TakenSlice
from runtime.play import Column
from tests.contract.memory_world import memory_world
from tests.contract.stores_world import LIMITS, StoresWorld


class Epoch:
    async def epoch(self) -> str:
        return "e"

    async def queue_empty(self, queue: str) -> bool:
        return False


class Published:
    def __init__(self) -> None:
        self.pages: list[PageOut] = []

    async def pages_out(self, pages: Sequence[PageOut]) -> None:
        self.pages += pages

    async def resume(self, run_ids: Sequence[str]) -> None: ...

    async def post(self, lane: str, calls: Sequence[Any]) -> None: ...


class Calls:
    """Keys in `far` are told to come back so many ms later, once each."""

    def __init__(self, far: Mapping[str, float]) -> None:
        self.far = dict(far)
        self.asked: list[str] = []

    async def execute(
        self, context: Any, tool: str, input: Any, options: Any, place: Any
    ) -> tuple[Any, bool]:
        self.asked.append(input)
        if input in self.far:
            raise RowWaitsError(RowWait(kind=WaitKind.LANE, due_ms=self.far.pop(input), detail="far"))
        return f"v:{input}", False


async def found(row: Any, ctx: Any) -> Any:
    scope = current_scope.get()
    assert scope is not None
    return await scope.tool(id="x", tool="t", input=row["k"])


PROGRAM = RowProgram(columns=(Column("found", found),), ctx=None)


class Stage:
    def __init__(self, world: StoresWorld, calls: Any) -> None:
        self.world = world
        self.published = Published()
        epoch: Any = Epoch()
        self.settling = Settling(world.settling, self.published, epoch, no_fault)
        writer = RowWriter(
            world.slices,
            session_id="s1",
            limits=LIMITS,
            fault=no_fault,
            take_usage=tuple,
            give_back_usage=lambda usage: None,
        )
        self.runner = SliceRunner(
            store=world.slices, writer=writer, calls=calls, session_id="s1", limits=LIMITS, fault=no_fault
        )

    async def take(self, dataset_id: int, number: int) -> TakenSlice:
        taken = await self.runner.take("r1", SliceId(dataset_id=dataset_id, page=0, slice=number))
        assert taken is not None
        return taken


async def staged(calls: Any) -> tuple[Stage, int]:
    world = memory_world()
    dataset_id = await world.seeded(1)
    stage = Stage(world, calls)
    await stage.settling.advance(dataset_id)
    return stage, dataset_id


async def test_a_slice_ends_without_its_waiting_rows_and_they_go_on_when_woken() -> None:
    calls = Calls({"k1": 60_000.0})
    stage, dataset_id = await staged(calls)
    assert await stage.runner.run(await stage.take(dataset_id, 0), PROGRAM) == SliceEnd.WAITS
    assert stage.runner.held() == 0
    assert await stage.runner.run(await stage.take(dataset_id, 1), PROGRAM) == SliceEnd.DONE
    assert await stage.settling.wake() == 0
    await stage.world.age(61)
    stage.published.pages.clear()
    assert await stage.settling.wake() == 1
    assert [page.slices for page in stage.published.pages] == [(0,)]
    assert await stage.runner.run(await stage.take(dataset_id, 0), PROGRAM) == SliceEnd.DONE
    assert sorted(calls.asked) == ["k0", "k1", "k1", "k2", "k3"]
    rows = await stage.world.rows(dataset_id)
    assert {row.state for row in rows.values()} == {RowState.COMPLETED}


async def test_a_slice_with_a_row_woken_meanwhile_is_given_back() -> None:
    class Wakes(Calls):
        async def execute(
            self, context: Any, tool: str, input: Any, options: Any, place: Any
        ) -> tuple[Any, bool]:
            if input == "k1" and len(self.asked) == 1:
                await stage.runner._writer._flush_all()
                await stage.world.age(61)
                assert await stage.settling.wake() == 1
            return await super().execute(context, tool, input, options, place)

    calls = Wakes({"k0": 60_000.0})
    stage, dataset_id = await staged(calls)
    assert await stage.runner.run(await stage.take(dataset_id, 0), PROGRAM) == SliceEnd.OPEN
    assert stage.runner.held() == 0
    await stage.settling.settle("r1", dataset_id, 0)
    assert stage.published.pages[-1].slices == (0,)
    again = await stage.take(dataset_id, 0)
    assert [row.row_key for row in again.rows] == ["k0"]
    assert await stage.runner.run(again, PROGRAM) == SliceEnd.DONE


async def test_a_row_that_took_four_processes_down_is_not_run_again() -> None:
    calls = Calls({})
    stage, dataset_id = await staged(calls)
    state: Any = stage.world.slices
    state._state.datasets[dataset_id].rows[0].crashes = LIMITS.suspect_crashes + LIMITS.suspect_deaths
    emptied = await stage.take(dataset_id, 0)
    assert emptied.rows == ()
    assert await stage.runner.run(emptied, PROGRAM) == SliceEnd.DONE
    await stage.settling.settle("r1", dataset_id, 0)
    for number in stage.published.pages[-1].slices:
        await stage.runner.run(await stage.take(dataset_id, number), PROGRAM)
    assert calls.asked == ["k1"]
    states = {at: row.state for at, row in (await stage.world.rows(dataset_id)).items()}
    assert (states[0], states[1]) == (RowState.FAILED, RowState.COMPLETED)
