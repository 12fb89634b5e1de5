"""Rows in order: those that never suspend share a task, each that suspends has its own."""

import asyncio

import pytest

from runtime.engine.row_drivers import RowDrivers


async def test_rows_that_never_suspend_share_one_task() -> None:
    tasks: list[object] = []

    async def run(row: int) -> None:
        tasks.append(asyncio.current_task())

    await RowDrivers(range(1_000), run, turn_s=60.0).done
    assert len(tasks) == 1_000
    assert len(set(tasks)) == 1


async def test_rows_that_suspend_run_at_once_in_order_each_in_its_own_task() -> None:
    begun: list[int] = []
    tasks: set[object] = set()
    gate = asyncio.Event()

    async def run(row: int) -> None:
        begun.append(row)
        tasks.add(asyncio.current_task())
        if row % 2:
            async with asyncio.timeout(5):
                await gate.wait()
            assert asyncio.current_task() in tasks

    drivers = RowDrivers(range(100), run, turn_s=60.0)
    while len(begun) < 100:
        await asyncio.sleep(0)
    assert begun == list(range(100))
    assert not drivers.done.done()
    gate.set()
    await drivers.done
    assert 50 <= len(tasks) <= 51


async def test_long_rows_give_way_to_the_loop() -> None:
    turns = 0

    def count() -> None:
        nonlocal turns
        turns += 1
        loop.call_soon(count)

    async def run(row: int) -> None:
        seen.append(turns)

    loop, seen = asyncio.get_running_loop(), list[int]()
    loop.call_soon(count)
    await RowDrivers(range(20), run, turn_s=0.0).done
    assert len(set(seen)) == 20


async def test_the_first_error_ends_all() -> None:
    async def run(row: int) -> None:
        if row == 3:
            raise ValueError("fatal")
        await asyncio.sleep(60)

    drivers = RowDrivers(range(10), run, turn_s=60.0)
    with pytest.raises(ValueError, match="fatal"):
        await drivers.done
    await drivers.cancel(1.0)
    assert not drivers._tasks


async def test_no_rows_are_done_at_once() -> None:
    async def run(row: int) -> None:
        raise AssertionError(row)

    await asyncio.wait_for(RowDrivers([], run, turn_s=1.0).done, 5)


async def test_cancelling_begins_no_further_row() -> None:
    begun: list[int] = []

    async def run(row: int) -> None:
        begun.append(row)
        await asyncio.sleep(60)

    drivers = RowDrivers(range(10), run, turn_s=60.0)
    await asyncio.sleep(0)
    await drivers.cancel(1.0)
    assert len(begun) < 10
    assert drivers.done.done()


async def test_rows_that_suspend_begin_together_within_a_few_turns_of_the_loop() -> None:
    """Begun one a turn, a slice's calls came to their lane and to the receipts in crumbs."""
    loop = asyncio.get_running_loop()
    turns = 0
    begun: list[int] = []
    go_on = asyncio.Event()

    def count() -> None:
        nonlocal turns
        turns += 1
        if len(begun) < 100:
            loop.call_soon(count)

    async def run(row: int) -> None:
        begun.append(row)
        await go_on.wait()

    drivers = RowDrivers(range(100), run, turn_s=60.0, ahead=64)
    loop.call_soon(count)
    while len(begun) < 100:
        await asyncio.sleep(0)
    assert begun == list(range(100))
    assert turns < 12
    go_on.set()
    await asyncio.wait_for(drivers.done, 5)


async def test_rows_that_never_suspend_share_a_task_whatever_may_be_ahead() -> None:
    tasks: set[object] = set()

    async def run(row: int) -> None:
        tasks.add(asyncio.current_task())

    await RowDrivers(range(1_000), run, turn_s=60.0, ahead=64).done
    assert len(tasks) == 1
