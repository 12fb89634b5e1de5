"""Fail-fast inside a process: a begun row stops before its next call, rows not begun are cancelled."""

from typing import Any

from runtime.context.scope import current_scope
from runtime.engine.row_writer import RowWriter, SliceEnd
from runtime.engine.settling import Settling
from runtime.engine.slice_run import RowProgram, SliceRunner
from runtime.faults import no_fault
from runtime.model.dataset import FAIL_FAST, DatasetState, NewDataset
from runtime.model.slice import SliceId
from runtime.play import Column
from tests.contract.memory_world import memory_world
from tests.contract.stores_world import LIMITS, StoresWorld
from tests.unit.test_slice_waits import Epoch, Published
from tests.waiting import wait_until_async


async def asked(name: str, value: Any) -> Any:
    scope: Any = current_scope.get()
    return await scope.tool(id=name, tool="t", input=value)


async def first(row: Any, ctx: Any) -> Any:
    return await asked("first", row["k"])


async def second(row: Any, ctx: Any) -> Any:
    try:
        return await asked("second", "2:" + row["k"])
    except Exception:  # an author that swallows errors can't swallow this
        return "swallowed"


class Calls:
    """`k0` fails; everybody else's first call is answered once the dataset fails."""

    def __init__(self, world: StoresWorld) -> None:
        self.world = world
        self.asked: list[str] = []

    async def execute(
        self, context: Any, tool: str, input: Any, options: Any, place: Any
    ) -> tuple[Any, bool]:
        self.asked.append(input)
        if input == "k0":
            raise ValueError("no k0")
        await wait_until_async(self.is_failing)
        return f"v:{input}", False

    async def is_failing(self) -> bool:
        return await self.world.dataset_state(1) is DatasetState.FAILING


async def test_a_failed_row_stops_the_others_before_their_next_call() -> None:
    world = memory_world()
    await world.held_run()
    new = NewDataset(
        run_id="r1", key="d", namespace="sheet", columns=("a", "b"), source_hash="", on_row_error=FAIL_FAST
    )
    dataset_id = (await world.datasets.open(new, 1, "dataset:d")).dataset_id
    await world.seed(dataset_id, 0, ["k0", "k1", "k2", "k3"])
    await world.datasets.finish_seeding(dataset_id, 1)
    published, epoch, calls = Published(), Epoch(), Calls(world)
    settling = Settling(world.settling, published, epoch, no_fault)  # type: ignore[arg-type]
    writer = RowWriter(
        world.slices,
        session_id="s1",
        limits=LIMITS,
        fault=no_fault,
        take_usage=tuple,
        give_back_usage=lambda usage: None,
    )
    runner = SliceRunner(
        store=world.slices,
        writer=writer,
        calls=calls,  # type: ignore[arg-type]
        session_id="s1",
        limits=LIMITS,
        fault=no_fault,
    )
    await settling.advance(dataset_id)
    program = RowProgram(columns=(Column("a", first), Column("b", second)), ctx=None)
    taken = await runner.take("r1", SliceId(dataset_id=dataset_id, page=0, slice=0))
    assert taken is not None
    assert await runner.run(taken, program) == SliceEnd.DONE
    assert calls.asked == ["k0", "k1"], "no second call, though the first one of k1 was answered"
    await settling.settle("r1", dataset_id, 0)
    assert await runner.take("r1", SliceId(dataset_id=dataset_id, page=0, slice=1)) is None
    states = [look.state.value for _, look in sorted((await world.rows(dataset_id)).items())]
    assert states == ["failed", "cancelled", "cancelled", "cancelled"]
    assert await world.dataset_state(dataset_id) is DatasetState.FAILED
