"""The row writer: finished rows of all slices of a process, written in bulk, one flush at a time."""

import asyncio
from collections.abc import Callable, Sequence
from weakref import WeakValueDictionary

import structlog

from runtime.engine.open_slice import GoOn, OpenSlice, RunLine, SliceEnd, bytes_of, end_of, next_parts
from runtime.engine.refused_writes import halves, without_values
from runtime.engine.row_events import RowEvents
from runtime.engine.stop_sign import StopSign
from runtime.errors import PersistenceLostError, PlaylaneError, ServiceUnreachableError, SliceLostError
from runtime.model.call import Usage
from runtime.model.row import FinishedRow
from runtime.model.slice import SliceId, TakenSlice
from runtime.policy.limits import Limits
from runtime.ports import (
    EventSink,
    Fault,
    RowWrite,
    RowWriteAnswer,
    SliceStore,
    no_events,
)

log = structlog.get_logger()


class RowWriter:
    """Buffers rows up to `writer_buffer_bytes`, flushes within `writer_flush_ms`; a flush is a barrier."""

    def __init__(
        self,
        store: SliceStore,
        *,
        session_id: str,
        limits: Limits,
        fault: Fault,
        take_usage: Callable[[], tuple[Usage, ...]],
        give_back_usage: Callable[[tuple[Usage, ...]], None],
        events: EventSink = no_events,
    ) -> None:
        self._store = store
        self._session_id = session_id
        self._limits = limits
        self._fault = fault
        self._events = RowEvents(events, limits)
        self._take_usage = take_usage
        self._give_back_usage = give_back_usage
        self._open: dict[SliceId, OpenSlice] = {}
        self._signs: WeakValueDictionary[int, StopSign] = WeakValueDictionary()
        self._buffered_bytes = 0
        self.buffered = 0  # rows that are not written yet
        self._room = asyncio.Event()
        self._room.set()
        self._flushing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._look: asyncio.TimerHandle | None = None
        # For the stall watch, by the loop's clock.
        self.written_s = 0.0
        self.blocked = 0
        self.blocked_since_s = 0.0
        self.buffered_since_s = 0.0

    def open(self, taken: TakenSlice, go_on: GoOn | None = None) -> "asyncio.Future[str]":
        """Begin a slice; the future ends with a SliceEnd, SliceLostError or ServiceUnreachableError.

        `go_on` is given rows of it that were woken while it is held.
        """
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._open[taken.id] = OpenSlice(taken=taken, ended=ended, go_on=go_on)
        self._look_soon()
        return ended

    def stop_sign(self, dataset_id: int) -> StopSign:
        """Goes up as soon as a flush says that the dataset fails; one for all its slices here."""
        return self._signs.setdefault(dataset_id, StopSign())

    async def add(self, slice_id: SliceId, row: FinishedRow, logs: Sequence[RunLine] = ()) -> None:
        """Hand over a finished row and what it logged; waits while the buffer is full."""
        size = bytes_of((row,), logs)
        while self._buffered_bytes and self._buffered_bytes + size > self._limits.writer_buffer_bytes:
            await self._wait_for_room()
        opened = self._open.get(slice_id)
        if opened is None:
            raise SliceLostError(f"slice {slice_id} is no longer held here")
        opened.rows.append(row)
        opened.logs.extend(logs)
        if not self.buffered:
            self.buffered_since_s = asyncio.get_running_loop().time()
        self.buffered += 1
        self._buffered_bytes += size
        if self._buffered_bytes >= self._limits.writer_bytes:
            self._flush_soon(0.0)
        elif self._timer is None:
            self._flush_soon(self._limits.writer_flush_ms / 1000)

    async def _wait_for_room(self) -> None:
        self._room.clear()
        self._flush_soon(0.0)
        if not self.blocked:
            self.blocked_since_s = asyncio.get_running_loop().time()
        self.blocked += 1
        try:
            await self._room.wait()
        finally:
            self.blocked -= 1

    def finish(self, slice_id: SliceId) -> None:
        """Nothing more comes for the slice: write the rest and settle it."""
        opened = self._open.get(slice_id)
        if opened is None:
            return
        opened.final = True
        self._flush_soon(self._limits.writer_final_ms / 1000)

    def drop(self, slice_id: SliceId) -> None:
        """Forget a slice; its unwritten rows will be run again by its next holder."""
        opened = self._open.pop(slice_id, None)
        if opened is not None:
            self._free(opened.rows, opened.logs)

    # ---- flushing

    def _look_soon(self) -> None:
        if not self._open:
            return
        loop, limits = asyncio.get_running_loop(), self._limits
        may_wake = any(opened.may_wake for opened in self._open.values())
        when = loop.time() + (limits.writer_woken_s if may_wake else limits.writer_look_s)
        if self._look is not None:
            if self._look.when() <= when:
                return
            self._look.cancel()
        self._look = loop.call_at(when, self._look_at_all)

    def _look_at_all(self) -> None:
        """Slices that wrote nothing for a while ask, for their run may have ended; so do those with rows that wait."""
        self._look = None
        for opened in self._open.values():
            opened.asks, opened.told = opened.may_wake or not opened.told, False
        if self._has_work():
            self._flush_soon(0.0)
        self._look_soon()

    def _flush_soon(self, delay_s: float) -> None:
        if self._flushing is not None:
            return
        loop = asyncio.get_running_loop()
        when = loop.time() + delay_s
        if self._timer is not None:
            if self._timer.when() <= when:
                return
            self._timer.cancel()
        self._timer = loop.call_at(when, self._start_flush)

    def _start_flush(self) -> None:
        self._timer = None
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().create_task(self._flush_all())

    async def _flush_all(self) -> None:
        try:
            while write := self._next_write():
                await self._put(write)
        finally:
            self._flushing = None
            if self._has_work():
                self._flush_soon(self._limits.writer_flush_ms / 1000)

    def _has_work(self) -> bool:
        return any(opened.has_news for opened in self._open.values())

    def _next_write(self) -> RowWrite | None:
        parts, logs = next_parts(list(self._open.values()), self._limits)
        if not parts:
            return None
        return RowWrite(
            session_id=self._session_id, slices=tuple(parts), usage=self._take_usage(), logs=tuple(logs)
        )

    async def _put(self, write: RowWrite) -> None:
        """Write and settle it; one bad row never stops what it travels with."""
        try:
            answer = await self._write(write)
        except ServiceUnreachableError as error:
            # Receipts are kept: whoever runs the slices next pays nothing again.
            lost = f"rows can't be written: {error}; the slice is given back"
            self._fail(write, ServiceUnreachableError(lost))
        except PlaylaneError as error:
            await self._put_apart(write, error)
        except Exception as error:
            self._fail(write, error)
            raise
        else:
            self._settle(write, answer)

    async def _put_apart(self, write: RowWrite, error: PlaylaneError) -> None:
        """What is refused is cut until the bad row is alone; it fails without its values."""
        parts = halves(write)
        if parts is not None:
            for part in parts:
                await self._put(part)
            return
        failed = without_values(write, str(error))
        if failed is not None:
            log.error("row refused", action="writer.refused", error=str(error), rows=_told(write))
            self._buffered_bytes += bytes_of(_rows_of(failed)) - bytes_of(_rows_of(write))
            await self._put(failed)
            return
        lost = f"rows can't be stored, and trying again won't help: {error}. The run ends here; its receipts are kept"
        self._fail(write, PersistenceLostError(lost))

    async def _write(self, write: RowWrite) -> RowWriteAnswer:
        """Tries again after a transient error, for `writer_retry_ms`."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._limits.writer_retry_ms / 1000
        delay_s = self._limits.writer_retry_first_s
        while True:
            try:
                await self._fault("rows.before_flush")
                answer = await self._store.flush(write)
                await self._fault("rows.after_flush")
                return answer
            except ServiceUnreachableError as error:
                if loop.time() + delay_s > deadline:
                    raise
                log.warning("rows not written yet", action="writer.retry", error=str(error), delay_s=delay_s)
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, self._limits.writer_retry_max_s)

    def _settle(self, write: RowWrite, answer: RowWriteAnswer) -> None:
        self._events.written(write, answer, asyncio.get_running_loop().time() * 1000)
        self.written_s = self.buffered_since_s = asyncio.get_running_loop().time()
        for dataset_id in answer.failing:
            self.stop_sign(dataset_id).is_up = True
        self._free(_rows_of(write), write.logs)
        for part in write.slices:
            opened = self._open.get(part.id)
            if opened is None or opened.taken.fence != part.fence:
                continue
            opened.told = True
            if part.id in answer.lost:
                self._end(opened, error=SliceLostError(f"slice {part.id} has a newer holder"))
                continue
            if part.id in answer.ended:
                self._end(opened, end=SliceEnd.ENDED)
                continue
            opened.let_wait(part.rows)
            if part.final:
                self._end(opened, end=end_of(part.id in answer.done, opened.waits))
                continue
            opened.hear(answer.woken.get(part.id, ()))
            if opened.may_wake:
                self._look_soon()

    def _fail(self, write: RowWrite, error: Exception) -> None:
        self._give_back_usage(write.usage)  # it may be other runs'
        self._free(_rows_of(write), write.logs)
        for part in write.slices:
            opened = self._open.get(part.id)
            if opened is not None:
                self._end(opened, error=error)

    def _end(self, opened: OpenSlice, *, end: str | None = None, error: Exception | None = None) -> None:
        self._open.pop(opened.taken.id, None)
        self._free(opened.rows, opened.logs)
        if opened.ended.done():
            return
        if error is not None:
            opened.ended.set_exception(error)
        else:
            opened.ended.set_result(end or SliceEnd.OPEN)

    def _free(self, rows: Sequence[FinishedRow], logs: Sequence[RunLine] = ()) -> None:
        self._buffered_bytes -= bytes_of(rows, logs)
        self.buffered -= len(rows)
        if self._buffered_bytes < self._limits.writer_buffer_bytes:
            self._room.set()


def _rows_of(write: RowWrite) -> list[FinishedRow]:
    return [row for part in write.slices for row in part.rows]


def _told(write: RowWrite) -> list[str]:
    return [row.row_key for row in _rows_of(write)]


__all__ = ["RowWriter", "SliceEnd"]
