"""A slice ends whatever a resolver of one of its rows raises or cancels; it isn't given back for ever."""

import asyncio
from typing import Any

import pytest

from runtime.engine.row_writer import RowWriter, SliceEnd
from runtime.engine.settling import Settling
from runtime.engine.slice_run import RowProgram, SliceRunner
from runtime.faults import no_fault
from runtime.model.slice import SliceId
from runtime.play import Column
from tests.contract.memory_world import memory_world
from tests.contract.stores_world import LIMITS
from tests.unit.test_row_run import cancelled_task, cancels_itself, unusual
from tests.unit.test_slice_waits import Epoch, Published


def runner_over(world: Any) -> SliceRunner:
    writer = RowWriter(
        world.slices,
        session_id="s1",
        limits=LIMITS,
        fault=no_fault,
        take_usage=tuple,
        give_back_usage=lambda usage: None,
    )
    return SliceRunner(
        store=world.slices,
        writer=writer,
        calls=None,  # type: ignore[arg-type]
        session_id="s1",
        limits=LIMITS,
        fault=no_fault,
    )


@pytest.mark.parametrize("odd", [cancelled_task, cancels_itself, unusual])
async def test_the_neighbours_of_an_odd_row_complete(odd: Any) -> None:
    world = memory_world()
    dataset_id = await world.seeded(1)
    await Settling(world.settling, Published(), Epoch(), no_fault).advance(dataset_id)  # type: ignore[arg-type]

    async def resolve(row: Any, ctx: Any) -> Any:
        return await odd(row, ctx) if row["k"] == "k0" else row["k"]

    runner = runner_over(world)
    for number in range(2):
        taken = await runner.take("r1", SliceId(dataset_id=dataset_id, page=0, slice=number))
        assert taken is not None
        program = RowProgram(columns=(Column("c", resolve),), ctx=None)
        assert await asyncio.wait_for(runner.run(taken, program), 5) == SliceEnd.DONE
    states = [look.state.value for _, look in sorted((await world.rows(dataset_id)).items())]
    assert states == ["failed", "completed", "completed", "completed"]


async def test_a_slice_that_was_taken_before_the_stop_and_not_begun_is_given_back() -> None:
    world = memory_world()
    dataset_id = await world.seeded(1)
    await Settling(world.settling, Published(), Epoch(), no_fault).advance(dataset_id)  # type: ignore[arg-type]
    runner = runner_over(world)
    taken = await runner.take("r1", SliceId(dataset_id=dataset_id, page=0, slice=0))
    assert taken is not None
    await runner.stop()
    program = RowProgram(columns=(Column("c", lambda row, ctx: 1),), ctx=None)
    assert await runner.run(taken, program) == SliceEnd.OPEN
    assert runner.held() == 0
    assert await world.take(dataset_id, 0, 0) is not None
