"""Rows of a slice are read as there is room; one that never fits fails and the others run."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from runtime.engine.byte_room import ByteRoom
from runtime.engine.row_writer import RowWriter, SliceEnd
from runtime.engine.slice_run import RowProgram, SliceRunner
from runtime.faults import no_fault
from runtime.model.dataset import SeedPage, SeedRow
from runtime.model.json_value import dumps
from runtime.model.row import LaterRow, RowState
from runtime.model.slice import SliceId
from runtime.play import Column
from runtime.policy.helpings import helpings
from tests.contract.memory_world import memory_world
from tests.contract.stores_world import LIMITS
from tests.waiting import wait_until_async


def later(*sizes: int) -> list[LaterRow]:
    return [LaterRow(position=n, row_key=str(n), size_bytes=size) for n, size in enumerate(sizes)]


def test_a_helping_holds_what_fits_and_a_large_row_comes_alone() -> None:
    found = helpings(later(3, 3, 4, 50, 1, 9, 1), most_bytes=10)
    assert [[row.position for row in helping] for helping in found] == [[0, 1, 2], [3], [4, 5], [6]]
    assert list(helpings([], most_bytes=10)) == []


async def test_room_is_given_in_the_order_in_which_it_was_asked_for() -> None:
    room, entered = ByteRoom(10), list[str]()
    gates = {name: asyncio.Event() for name in "abcd"}

    async def work(name: str, size: int) -> None:
        async with room.held(size):
            entered.append(name)
            await gates[name].wait()

    loop = asyncio.get_running_loop()
    tasks = {
        name: loop.create_task(work(name, size)) for name, size in {"a": 6, "b": 6, "c": 4, "d": 99}.items()
    }
    await wait_until_async(lambda: room.waiting() == 3)
    assert entered == ["a"], "c would fit but b asked first"
    gates["a"].set()
    await wait_until_async(lambda: entered == ["a", "b", "c"])
    tasks["d"].cancel()
    gates["b"].set()
    gates["c"].set()
    await asyncio.wait(tasks.values(), timeout=5)
    assert (room.used, room.waiting()) == (0, 0)
    with pytest.raises(asyncio.CancelledError):
        await tasks["d"]


async def test_big_rows_are_read_in_helpings_and_one_that_never_fits_fails() -> None:
    limits = replace(LIMITS, slice_rows=8, slice_read_bytes=250, helping_bytes=250, active_rows_bytes=300)
    world = memory_world()
    world.slices._state.limits = limits  # type: ignore[attr-defined]
    await world.held_run()
    dataset_id = (await world.opened()).dataset_id
    sizes = [80, 80, 80, 80, 900, 80, 80, 80]
    rows = tuple(
        SeedRow(position=n, row_key=f"k{n}", input=dumps({"k": "x" * size})) for n, size in enumerate(sizes)
    )
    await world.datasets.seed_page(
        SeedPage(
            dataset_id=dataset_id,
            run_id="r1",
            attempt=1,
            page=0,
            first_position=0,
            end_position=8,
            rows=rows,
            input_digest="",
        )
    )
    await world.datasets.finish_seeding(dataset_id, 1)
    await world.settling.claim_pages(dataset_id)
    writer = RowWriter(
        world.slices,
        session_id="s1",
        limits=limits,
        fault=no_fault,
        take_usage=tuple,
        give_back_usage=lambda usage: None,
    )
    calls: Any = None
    runner = SliceRunner(
        store=world.slices, writer=writer, calls=calls, session_id="s1", limits=limits, fault=no_fault
    )
    taken = await runner.take("r1", SliceId(dataset_id=dataset_id, page=0, slice=0))
    assert taken is not None
    assert [len(taken.rows), len(taken.later)] == [2, 6]
    program = RowProgram(columns=(Column("size", lambda row, ctx: len(row["k"])),), ctx=None)
    assert await runner.run(taken, program) == SliceEnd.DONE
    states = [look.state for _, look in sorted((await world.rows(dataset_id)).items())]
    assert states == [*[RowState.COMPLETED] * 4, RowState.FAILED, *[RowState.COMPLETED] * 3]
    assert len(await world.sheet("org", "play", "sheet")) == 8
