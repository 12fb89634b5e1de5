"""The row writer: bulk, bounded, a barrier, and honest about who lost what."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from runtime.engine.row_writer import RowWriter, SliceEnd
from runtime.errors import PersistenceLostError, PlaylaneError, ServiceUnreachableError, SliceLostError
from runtime.faults import no_fault
from runtime.model.call import Usage
from runtime.model.dataset import DatasetFacts
from runtime.model.row import FinishedRow, InputRow, LaterRow, RowState
from runtime.model.row_wait import RowWait, WaitKind
from runtime.model.slice import SliceId, TakenSlice
from runtime.policy.limits import Limits
from runtime.ports import LogLine, RowWrite, RowWriteAnswer
from tests.waiting import wait_until_async as wait_until

FACTS = DatasetFacts(
    dataset_id=1,
    run_id="run",
    org_id="o",
    play="p",
    key="d",
    namespace="d",
    columns=("x",),
    source_hash="h",
    on_row_error="isolate",
    options={},
    write_version=1,
)


def taken(number: int = 0, fence: int = 1) -> TakenSlice:
    return TakenSlice(id=SliceId(dataset_id=1, page=0, slice=number), fence=fence, facts=FACTS, rows=())


def row(position: int, size: int = 2) -> FinishedRow:
    return FinishedRow(
        position=position, row_key=str(position), state=RowState.COMPLETED, data=b"x" * size, cell_meta=b""
    )


class Store:
    """Remembers writes; answers that final slices are done, unless told otherwise."""

    def __init__(self) -> None:
        self.writes: list[RowWrite] = []
        self.failures = 0
        self.lost: set[SliceId] = set()
        self.ended: set[SliceId] = set()
        self.failing: set[int] = set()
        self.gate = asyncio.Event()
        self.gate.set()

    async def flush(self, write: RowWrite) -> RowWriteAnswer:
        if self.failures:
            self.failures -= 1
            raise ServiceUnreachableError("no database")
        self.writes.append(write)
        await self.gate.wait()
        done = {part.id for part in write.slices if part.final}
        return RowWriteAnswer(
            done=frozenset(done),
            lost=frozenset(self.lost),
            ended=frozenset(self.ended),
            failing=frozenset(self.failing),
        )


def writer(store: Any, usage: list[Usage] | None = None, **limits: Any) -> RowWriter:
    counted = usage if usage is not None else []

    def take() -> tuple[Usage, ...]:
        out = tuple(counted)
        counted.clear()
        return out

    return RowWriter(
        store,
        session_id="me",
        limits=replace(Limits(writer_flush_ms=5.0, writer_final_ms=1.0), **limits),
        fault=no_fault,
        take_usage=take,
        give_back_usage=counted.extend,
    )


async def test_rows_of_many_slices_go_in_one_write() -> None:
    store = Store()
    rows = writer(store)
    ends = [rows.open(taken(number)) for number in range(5)]
    for number in range(5):
        for position in range(100):
            await rows.add(taken(number).id, row(position))
        rows.finish(taken(number).id)
    assert await asyncio.gather(*ends) == [SliceEnd.DONE] * 5
    assert [sum(len(part.rows) for part in write.slices) for write in store.writes] == [500]


async def test_a_write_never_exceeds_its_rows_and_a_slice_is_final_with_its_last_row() -> None:
    store = Store()
    rows = writer(store, writer_rows=60)
    end = rows.open(taken())
    for position in range(100):
        await rows.add(taken().id, row(position))
    rows.finish(taken().id)
    assert await end == SliceEnd.DONE
    assert [[(len(part.rows), part.final) for part in write.slices] for write in store.writes] == [
        [(60, False)],
        [(40, True)],
    ]


async def test_what_finishes_during_a_flush_goes_with_the_next() -> None:
    store = Store()
    store.gate.clear()
    rows = writer(store)
    end = rows.open(taken())
    await rows.add(taken().id, row(0))
    await wait_until(lambda: len(store.writes) == 1)
    for position in range(1, 50):
        await rows.add(taken().id, row(position))
    rows.finish(taken().id)
    store.gate.set()
    assert await end == SliceEnd.DONE
    assert [len(write.slices[0].rows) for write in store.writes] == [1, 49]


async def test_a_full_buffer_holds_back_its_rows() -> None:
    store = Store()
    store.gate.clear()
    rows = writer(store, writer_buffer_bytes=1_000, writer_bytes=1_000)
    rows.open(taken())
    adding = asyncio.get_running_loop().create_task(add_many(rows, 20))
    await wait_until(lambda: len(store.writes) == 1)
    assert not adding.done()
    store.gate.set()
    await asyncio.wait_for(adding, 5)


async def add_many(rows: RowWriter, count: int) -> None:
    for position in range(count):
        await rows.add(taken().id, row(position, size=200))


async def test_a_transient_failure_is_retried_and_loses_nothing() -> None:
    store, usage = Store(), [Usage(run_id="run", tool="t", cached=3)]
    store.failures = 2
    rows = writer(store, usage)
    end = rows.open(taken())
    await rows.add(taken().id, row(0))
    rows.finish(taken().id)
    assert await end == SliceEnd.DONE
    assert [part.cached for part in store.writes[0].usage] == [3]


async def test_a_lasting_failure_gives_the_slice_back_with_its_counts() -> None:
    store, usage = Store(), [Usage(run_id="run", tool="t", cached=3)]
    store.failures = 1_000
    rows = writer(store, usage, writer_retry_ms=10.0)
    end = rows.open(taken())
    await rows.add(taken().id, row(0))
    rows.finish(taken().id)
    with pytest.raises(ServiceUnreachableError):
        await end
    assert [part.cached for part in usage] == [3]


async def test_a_newer_fence_means_lost_and_an_ended_run_means_ended() -> None:
    store = Store()
    store.lost, store.ended = {taken(0).id}, {taken(1).id}
    rows = writer(store)
    lost, ended = rows.open(taken(0)), rows.open(taken(1))
    await rows.add(taken(0).id, row(0))
    await rows.add(taken(1).id, row(0))
    with pytest.raises(SliceLostError):
        await lost
    assert await ended == SliceEnd.ENDED
    with pytest.raises(SliceLostError):
        await rows.add(taken(0).id, row(1))


async def test_a_write_never_exceeds_its_bytes_and_a_large_row_is_written_alone() -> None:
    store = Store()
    rows = writer(store, writer_bytes=1_000)
    end = rows.open(taken())
    for position, size in enumerate((400, 400, 400, 5_000, 400)):
        await rows.add(taken().id, row(position, size=size))
    rows.finish(taken().id)
    assert await end == SliceEnd.DONE
    assert [[one.position for one in write.slices[0].rows] for write in store.writes] == [
        [0, 1],
        [2],
        [3],
        [4],
    ]


async def test_a_write_never_exceeds_its_bytes_over_slices_either() -> None:
    store = Store()
    rows = writer(store, writer_bytes=1_000)
    ends = [rows.open(taken(number)) for number in range(3)]
    for number, size in enumerate((400, 900, 500)):
        await rows.add(taken(number).id, row(number, size=size))
        rows.finish(taken(number).id)
    assert await asyncio.gather(*ends) == [SliceEnd.DONE] * 3
    assert [[part.id.slice for part in write.slices] for write in store.writes] == [[0, 2], [1]]


async def test_the_buffer_never_holds_more_than_its_bytes_however_many_rows_wait() -> None:
    store, most = Store(), 0
    store.gate.clear()
    rows = writer(store, writer_buffer_bytes=1_000, writer_bytes=1_000)
    rows.open(taken())

    async def add(position: int) -> None:
        nonlocal most
        await rows.add(taken().id, row(position, size=300))
        most = max(most, rows._buffered_bytes)

    loop = asyncio.get_running_loop()
    adding = [loop.create_task(add(position)) for position in range(50)]
    await wait_until(lambda: len(store.writes) == 1)
    store.gate.set()
    await asyncio.wait_for(asyncio.gather(*adding), 5)
    assert most == 900


async def test_rows_wait_for_company_for_a_tenth_of_a_second() -> None:
    assert Limits().writer_flush_ms == 100.0
    store = Store()
    rows = writer(store, writer_flush_ms=50.0)
    rows.open(taken())
    loop = asyncio.get_running_loop()
    began = loop.time()
    for position in range(3):
        await rows.add(taken().id, row(position))
    await wait_until(lambda: store.writes)
    assert loop.time() - began >= 0.045
    assert len(store.writes[0].slices[0].rows) == 3


class Refusing(Store):
    """Refuses every write that holds a row with this byte in its data."""

    async def flush(self, write: RowWrite) -> RowWriteAnswer:
        if any(b"!" in one.data for part in write.slices for one in part.rows):
            raise PlaylaneError("Postgres refused writing rows: SQLSTATE 22P05")
        return await super().flush(write)


async def test_one_refused_row_fails_alone() -> None:
    store = Refusing()
    rows = writer(store)
    ends = [rows.open(taken(number)) for number in range(3)]
    for number in range(3):
        for position in range(10):
            bad = (number, position) == (1, 4)
            await rows.add(taken(number).id, replace(row(position), data=b"!" if bad else b"x"))
        rows.finish(taken(number).id)
    assert await asyncio.gather(*ends) == [SliceEnd.DONE] * 3
    stored = [(part.id.slice, one) for write in store.writes for part in write.slices for one in part.rows]
    assert len(stored) == 30
    assert len({(number, one.position) for number, one in stored}) == 30
    failed = [(number, one.position) for number, one in stored if one.state is RowState.FAILED]
    assert failed == [(1, 4)]


async def test_a_refused_row_leaves_nothing_in_the_buffer() -> None:
    """It is written smaller, or larger, than it was handed over: the room that it took is free again."""
    rows = writer(Refusing(), writer_buffer_bytes=10_000)
    for number in range(5):
        end = rows.open(taken(number))
        await rows.add(taken(number).id, replace(row(0), data=b"!" * (9_000 if number % 2 else 10)))
        rows.finish(taken(number).id)
        assert await asyncio.wait_for(end, 5) == SliceEnd.DONE
    assert (rows._buffered_bytes, rows.buffered) == (0, 0)


def lines(count: int, text: str = "said") -> list[tuple[str, LogLine]]:
    return [("run", LogLine(scope="row:0", n=n, level="info", message=text, fields={})) for n in range(count)]


async def test_what_rows_logged_goes_with_them_and_counts_in_the_buffer() -> None:
    store = Store()
    rows = writer(store, writer_lines=3)
    end = rows.open(taken())
    await rows.add(taken().id, row(0), lines(2))
    await wait_until(lambda: store.writes)
    assert (len(store.writes[0].logs), store.writes[0].slices[0].final) == (2, False)
    await rows.add(taken().id, row(1), lines(7))
    assert rows._buffered_bytes > 7 * 100
    rows.finish(taken().id)
    assert await end == SliceEnd.DONE
    assert [len(write.logs) for write in store.writes] == [2, 3, 3, 1]
    assert [write.slices[0].final for write in store.writes] == [False, False, False, True]
    assert rows._buffered_bytes == 0


async def test_what_is_refused_for_good_ends_its_run() -> None:
    class Never(Store):
        async def flush(self, write: RowWrite) -> RowWriteAnswer:
            raise PlaylaneError("Postgres refused writing rows: SQLSTATE 42P01")

    rows = writer(Never())
    end = rows.open(taken())
    await rows.add(taken().id, row(0))
    rows.finish(taken().id)
    with pytest.raises(PersistenceLostError):
        await end


async def test_a_slice_that_writes_nothing_asks_whether_to_go_on() -> None:
    store = Store()
    rows = writer(store, writer_look_s=0.02)
    end = rows.open(taken())
    await wait_until(lambda: store.writes)
    assert store.writes[0].slices[0].rows == ()
    store.ended = {taken().id}
    assert await asyncio.wait_for(end, 5) == SliceEnd.ENDED


async def test_the_stop_sign_of_a_failing_dataset_goes_up_for_all_its_slices() -> None:
    store = Store()
    store.failing = {1}
    rows = writer(store)
    rows.open(taken(0))
    sign = rows.stop_sign(1)
    other = rows.stop_sign(2)
    await rows.add(taken(0).id, row(0))
    await wait_until(lambda: sign.is_up)
    assert rows.stop_sign(1) is sign
    assert not other.is_up


def taken_rows(*positions: int, fence: int = 1) -> TakenSlice:
    rows = tuple(InputRow(position=one, row_key=str(one), input={}) for one in positions)
    return replace(taken(fence=fence), rows=rows)


def later(position: int) -> LaterRow:
    return LaterRow(position=position, row_key=str(position), size_bytes=1)


def waits(position: int) -> FinishedRow:
    return replace(row(position), state=RowState.WAITING, data=b"", wait=RowWait(kind=WaitKind.LANE))


class Wakes(Store):
    """Says of each slice that asks that these rows of it are open and have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.open: tuple[LaterRow, ...] = ()

    @property
    def asked(self) -> int:
        return sum(part.asks_woken for write in self.writes for part in write.slices)

    async def flush(self, write: RowWrite) -> RowWriteAnswer:
        asking = [part.id for part in write.slices if part.asks_woken]
        return replace(await super().flush(write), woken=dict.fromkeys(asking, self.open))


async def test_a_woken_row_is_handed_over_once_and_again_when_it_waited_again() -> None:
    store, went_on = Wakes(), list[int]()
    rows = writer(store, writer_woken_s=0.01)
    end = rows.open(taken_rows(0, 1), lambda woken: went_on.extend(one.position for one in woken))
    await rows.add(taken().id, waits(0))
    store.open = (later(0), later(1))  # 1 has waited before it was taken: it is in hand
    await wait_until(lambda: went_on)
    asked = store.asked
    await wait_until(lambda: store.asked > asked + 3)
    assert went_on == [0]
    await rows.add(taken().id, waits(0))
    await wait_until(lambda: went_on == [0, 0])
    rows.finish(taken().id)
    assert await end == SliceEnd.WAITS


async def test_only_a_slice_with_rows_that_may_wait_asks_for_woken_ones() -> None:
    store = Wakes()
    rows = writer(store, writer_woken_s=0.01, writer_look_s=0.01)
    rows.open(taken_rows(0), lambda woken: None)
    await rows.add(taken().id, row(0))
    await wait_until(lambda: len(store.writes) > 3)
    assert store.asked == 0
    later_holder = taken_rows(0, fence=2)
    rows.open(replace(later_holder, id=taken(1).id), lambda woken: None)
    await wait_until(lambda: store.asked)
    assert {part.id for write in store.writes for part in write.slices if part.asks_woken} == {taken(1).id}


async def test_a_slice_that_lets_its_first_row_wait_looks_sooner() -> None:
    store, went_on = Wakes(), list[int]()
    rows = writer(store, writer_woken_s=0.01, writer_look_s=3_600.0)
    rows.open(taken_rows(0, 1), lambda woken: went_on.extend(one.position for one in woken))
    store.open = (later(0),)
    await rows.add(taken().id, waits(0))
    await wait_until(lambda: went_on == [0])


async def test_nothing_goes_on_in_a_slice_that_is_finished() -> None:
    store, went_on = Wakes(), list[int]()
    rows = writer(store, writer_woken_s=0.01)
    end = rows.open(taken_rows(0, 1), lambda woken: went_on.extend(one.position for one in woken))
    await rows.add(taken().id, waits(0))
    await wait_until(lambda: store.writes)
    store.open = (later(0),)
    rows.finish(taken().id)
    await end
    assert went_on == []
