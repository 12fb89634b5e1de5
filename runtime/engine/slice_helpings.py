"""The rows of a held slice: those that came with it, those read later, and those woken while others of it run."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import Context, copy_context
from typing import Any

from runtime.engine.byte_room import ByteRoom
from runtime.engine.open_slice import RunLine
from runtime.engine.row_drivers import RowDrivers
from runtime.engine.row_run import too_large_row
from runtime.engine.row_waits import SliceBoundaries
from runtime.engine.row_writer import RowWriter
from runtime.engine.slice_turn import Read, SliceTurn
from runtime.engine.stop_sign import StopSign
from runtime.engine.stored_cells import stored_rows
from runtime.model.row import InputRow, LaterRow
from runtime.policy.helpings import helpings
from runtime.policy.limits import Limits
from runtime.ports import SliceStore, WaitStore

ReadRows = Callable[[], Awaitable[Sequence[InputRow]]]


class SliceHelpings:
    """One holding of a slice, from its first row to its last write."""

    def __init__(
        self,
        turn: SliceTurn,
        *,
        store: SliceStore,
        writer: RowWriter,
        waits: WaitStore | None,
        room: ByteRoom,
        limits: Limits,
    ) -> None:
        self._turn = turn
        self._taken = turn.taken
        self._store = store
        self._writer = writer
        self._waits = waits
        self._room = room
        self._limits = limits
        self._context: Context = copy_context()  # the slice's: woken rows are heard of outside of it
        self._tasks: set[asyncio.Task[None]] = set()
        self._ran: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._written = writer.open(turn.taken, self._go_on)

    async def run(self) -> str:
        """Run all rows to their ends, or to the slice's early end; returns a SliceEnd."""
        self._begin(self._run_taken())
        try:
            await self._ran
        finally:
            await self._cancel()
        if not self._written.done():
            self._writer.finish(self._taken.id)
        return await self._written

    def _go_on(self, rows: Sequence[LaterRow]) -> None:
        """Rows woken since they were let wait. At the very end they stay open, and the slice is given back."""
        if not self._ran.done():
            self._begin(self._run_woken(rows))

    def _begin(self, helping: Coroutine[Any, Any, None]) -> None:
        loop = asyncio.get_running_loop()
        task = loop.create_task(helping, context=self._context.copy())
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """The last one ends the slice's rows; what one of them raises ends the others."""
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if self._ran.done():
            return
        if error is not None:
            self._ran.set_exception(error)
        elif task.cancelled():
            self._ran.cancel()
        elif not self._tasks:
            self._ran.set_result(None)

    async def _cancel(self) -> None:
        self._ran.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:  # each waits as long for its rows
            await asyncio.wait(tasks, timeout=2 * self._limits.left_over_wait_s)

    async def _run_taken(self) -> None:
        taken = self._taken
        boundaries = self._boundaries()
        size = sum(row.size_bytes for row in taken.rows)
        await self._run_helping(size, lambda: _there(taken.rows), boundaries)
        await self._run_all_later(taken.later, boundaries)

    async def _run_woken(self, rows: Sequence[LaterRow]) -> None:
        await self._run_all_later(rows, self._boundaries(rows))

    async def _run_all_later(self, rows: Sequence[LaterRow], boundaries: SliceBoundaries | None) -> None:
        for later in helpings(rows, most_bytes=self._limits.helping_bytes):
            if self._written.done():
                return
            await self._run_later(later, boundaries)

    async def _run_later(self, later: Sequence[LaterRow], boundaries: SliceBoundaries | None) -> None:
        """Rows whose input is read now, as there is room; one that never fits fails."""
        fitting = [row for row in later if row.size_bytes <= self._room.limit]
        for row in later:
            if row.size_bytes > self._room.limit:
                await self._writer.add(self._taken.id, too_large_row(row, self._room.limit))
        positions = [row.position for row in fitting]
        size = sum(row.size_bytes for row in fitting)
        if fitting:
            await self._run_helping(size, lambda: self._store.read_rows(self._taken, positions), boundaries)

    async def _run_helping(self, size: int, read: ReadRows, boundaries: SliceBoundaries | None) -> None:
        """Run rows to their ends, or to the slice's early end."""
        turn, written = self._turn, self._written
        async with self._room.held(size):
            rows = await read()
            stored = await stored_rows(self._store, turn.taken.facts, rows, turn.program.columns)
            known = Read(stored=stored, boundaries=boundaries)
            leaving = StopSign()
            drivers = RowDrivers(
                rows,
                lambda row: self._run_row(row, known, leaving),
                turn_s=self._limits.row_turn_ms / 1000,
                ahead=self._limits.rows_begun_ahead,
            )
            try:
                await asyncio.wait({drivers.done, written}, return_when=asyncio.FIRST_COMPLETED)
                if not written.done():
                    drivers.done.result()
            finally:
                leaving.is_up = True
                await drivers.cancel(self._limits.left_over_wait_s)

    async def _run_row(self, row: InputRow, read: Read, leaving: StopSign) -> None:
        logs: list[RunLine] = []
        ended = await self._turn.finished(row, read, leaving, logs)
        if not leaving.is_up:  # else the slice may have another holder, in this process too
            await self._writer.add(self._taken.id, ended, logs)

    def _boundaries(self, woken: Sequence[LaterRow] | None = None) -> SliceBoundaries | None:
        return None if self._waits is None else SliceBoundaries(self._waits, self._taken, woken)


async def _there(rows: Sequence[InputRow]) -> Sequence[InputRow]:
    return rows
