"""The row writer: finished rows of all slices of a process, written in bulk, one flush at a time."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from runtime.errors import ServiceUnreachableError, SliceLostError
from runtime.model.call import Usage
from runtime.model.row import FinishedRow
from runtime.model.slice import SliceId, TakenSlice
from runtime.policy.limits import Limits
from runtime.ports import Fault, LogLine, RowWrite, RowWriteAnswer, SliceRows, SliceStore

log = structlog.get_logger()


class SliceEnd:
    """What a slice's last flush said."""

    DONE = "done"
    WAITS = "waits"  # done, but for rows that wait
    OPEN = "open"  # a row of it is open again: it was woken meanwhile
    ENDED = "ended"  # its run or dataset has ended


@dataclass(slots=True, eq=False)
class _Open:
    """A held slice with rows that are not written yet."""

    taken: TakenSlice
    ended: asyncio.Future[str]
    rows: list[FinishedRow] = field(default_factory=list)
    logs: list[tuple[str, LogLine]] = field(default_factory=list)
    final: bool = False
    waits: bool = False  # some row of it was let wait


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
    ) -> None:
        self._store = store
        self._session_id = session_id
        self._limits = limits
        self._fault = fault
        self._take_usage = take_usage
        self._give_back_usage = give_back_usage
        self._open: dict[SliceId, _Open] = {}
        self._buffered_bytes = 0
        self._room = asyncio.Event()
        self._room.set()
        self._flushing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def open(self, taken: TakenSlice) -> "asyncio.Future[str]":
        """Begin a slice; the future ends with a SliceEnd, SliceLostError or ServiceUnreachableError."""
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._open[taken.id] = _Open(taken=taken, ended=ended)
        return ended

    async def add(self, slice_id: SliceId, row: FinishedRow) -> None:
        """Hand over a finished row; waits while the buffer is full."""
        opened = self._open.get(slice_id)
        if opened is None:
            raise SliceLostError(f"slice {slice_id} is no longer held here")
        opened.rows.append(row)
        self._buffered_bytes += row.size_bytes
        if self._buffered_bytes >= self._limits.writer_buffer_bytes:
            self._room.clear()
            self._flush_soon(0.0)
        else:
            self._flush_soon(self._limits.writer_flush_ms / 1000)
        if not self._room.is_set():
            await self._room.wait()

    def finish(self, slice_id: SliceId, logs: list[tuple[str, LogLine]]) -> None:
        """Nothing more comes for the slice: write the rest and settle it."""
        opened = self._open.get(slice_id)
        if opened is None:
            return
        opened.logs.extend(logs)
        opened.final = True
        self._flush_soon(self._limits.writer_final_ms / 1000)

    def drop(self, slice_id: SliceId) -> None:
        """Forget a slice; its unwritten rows will be run again by its next holder."""
        opened = self._open.pop(slice_id, None)
        if opened is not None:
            self._free(opened.rows)

    # ---- flushing

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
                answer = await self._write(write)
                if answer is not None:
                    self._settle(write, answer)
        finally:
            self._flushing = None
            if self._has_work():
                self._flush_soon(self._limits.writer_flush_ms / 1000)

    def _has_work(self) -> bool:
        return any(opened.rows or opened.final for opened in self._open.values())

    def _next_write(self) -> RowWrite | None:
        """Take at most `writer_rows` rows or `writer_bytes`; a slice is final only with its last row."""
        parts: list[SliceRows] = []
        logs: list[tuple[str, LogLine]] = []
        rows_left, bytes_left = self._limits.writer_rows, self._limits.writer_bytes
        for opened in list(self._open.values()):
            if not (opened.rows or opened.final) or rows_left <= 0 or bytes_left <= 0:
                continue
            taken = _within(opened.rows, rows_left, bytes_left)
            rows, opened.rows = opened.rows[:taken], opened.rows[taken:]
            rows_left -= len(rows)
            bytes_left -= sum(row.size_bytes for row in rows)
            final = opened.final and not opened.rows
            if final:
                logs.extend(opened.logs)
            held = opened.taken
            parts.append(
                SliceRows(id=held.id, fence=held.fence, facts=held.facts, rows=tuple(rows), final=final)
            )
        if not parts:
            return None
        return RowWrite(
            session_id=self._session_id, slices=tuple(parts), usage=self._take_usage(), logs=tuple(logs)
        )

    async def _write(self, write: RowWrite) -> RowWriteAnswer | None:
        """Retry a transient error for `writer_retry_ms`, then give the slices back."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._limits.writer_retry_ms / 1000
        delay_s = 0.05
        while True:
            try:
                await self._fault("rows.before_flush")
                answer = await self._store.flush(write)
                await self._fault("rows.after_flush")
                return answer
            except ServiceUnreachableError as error:
                if loop.time() + delay_s > deadline:
                    self._give_up(write, str(error))
                    return None
                log.warning("rows not written yet", action="writer.retry", error=str(error), delay_s=delay_s)
                await asyncio.sleep(delay_s)
                delay_s = min(delay_s * 2, 2.0)
            except Exception as error:
                self._fail(write, error)
                raise

    def _settle(self, write: RowWrite, answer: RowWriteAnswer) -> None:
        for part in write.slices:
            self._free(part.rows)
            opened = self._open.get(part.id)
            if opened is None or opened.taken.fence != part.fence:
                continue
            if part.id in answer.lost:
                self._end(opened, error=SliceLostError(f"slice {part.id} has a newer holder"))
                continue
            if part.id in answer.ended:
                self._end(opened, end=SliceEnd.ENDED)
                continue
            opened.waits = opened.waits or any(row.wait for row in part.rows)
            if part.final:
                self._end(opened, end=_end_of(part.id in answer.done, opened.waits))

    def _give_up(self, write: RowWrite, reason: str) -> None:
        """Its receipts are kept: whoever runs the slices next pays nothing again."""
        self._give_back_usage(write.usage)
        self._fail(
            write, ServiceUnreachableError(f"rows can't be written: {reason}; the slice is given back")
        )

    def _fail(self, write: RowWrite, error: Exception) -> None:
        for part in write.slices:
            self._free(part.rows)
            opened = self._open.get(part.id)
            if opened is not None:
                self._end(opened, error=error)

    def _end(self, opened: _Open, *, end: str | None = None, error: Exception | None = None) -> None:
        self._open.pop(opened.taken.id, None)
        self._free(opened.rows)
        if opened.ended.done():
            return
        if error is not None:
            opened.ended.set_exception(error)
        else:
            opened.ended.set_result(end or SliceEnd.OPEN)

    def _free(self, rows: "list[FinishedRow] | tuple[FinishedRow, ...]") -> None:
        self._buffered_bytes -= sum(row.size_bytes for row in rows)
        if self._buffered_bytes < self._limits.writer_buffer_bytes:
            self._room.set()


def _end_of(done: bool, waits: bool) -> str:
    if not done:
        return SliceEnd.OPEN
    return SliceEnd.WAITS if waits else SliceEnd.DONE


def _within(rows: list[FinishedRow], most_rows: int, most_bytes: int) -> int:
    """How many leading rows fit; at least one, so that a large row is written alone."""
    size = 0
    for count, row in enumerate(rows[:most_rows]):
        size += row.size_bytes
        if size > most_bytes and count:
            return count
    return min(len(rows), most_rows)
