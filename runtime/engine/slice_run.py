"""One slice: run its rows concurrently, hand them to the row writer, end when they are written."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog
from structlog.contextvars import bind_contextvars

from runtime import tracing
from runtime.context.dataset_handle import current_reader
from runtime.engine.byte_room import ByteRoom
from runtime.engine.cell_run import CellRules
from runtime.engine.handle_reads import HandleReads
from runtime.engine.hosts import Services
from runtime.engine.provenance import RowTrace
from runtime.engine.row_drivers import RowDrivers
from runtime.engine.row_run import cancelled_row, died_row, run_row, too_large_row
from runtime.engine.row_scope import RowScope
from runtime.engine.row_waits import RowWaiting, SliceBoundaries
from runtime.engine.row_writer import RowWriter, SliceEnd
from runtime.engine.stall_watch import StallWatch
from runtime.engine.stop_sign import StopSign
from runtime.engine.stored_cells import cell_rules, stored_rows
from runtime.engine.tool_calls import CallContext, ToolCalls
from runtime.errors import OwnershipLostError, SliceLostError
from runtime.model.cell import StoredCells
from runtime.model.lineage import Lineage
from runtime.model.row import FinishedRow, InputRow, LaterRow
from runtime.model.slice import SliceId, TakenSlice
from runtime.play import Column
from runtime.policy.budgeting import accounts_of
from runtime.policy.freshness import Refresh
from runtime.policy.helpings import helpings
from runtime.policy.limits import Limits
from runtime.policy.lineage import lineage_of
from runtime.ports import Fault, LogLine, SliceStore, WaitStore

log = structlog.get_logger()


def wall_ms() -> int:
    """Now, by this machine's clock: for what is shown, never for what is decided."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RowProgram:
    """A dataset's columns as recovered from its play's body, and the ctx that they hold."""

    columns: tuple[Column, ...]
    ctx: Any


class SliceRunner:
    """Takes and runs slices of this process; knows what it holds, so that it can give it back."""

    def __init__(
        self,
        *,
        store: SliceStore,
        writer: RowWriter,
        calls: ToolCalls,
        session_id: str,
        limits: Limits,
        fault: Fault,
        waits: WaitStore | None = None,
        reads: HandleReads | None = None,
        services: Services | None = None,
    ) -> None:
        self._store = store
        self._reads = reads
        self._services = services
        self._waits = waits
        self._writer = writer
        self._calls = calls
        self._session_id = session_id
        self._limits = limits
        self._fault = fault
        self._room = ByteRoom(limits.active_rows_bytes)
        self._stalls: StallWatch | None = None  # made on the loop
        self._held: dict[SliceId, TakenSlice] = {}
        self._running: dict[SliceId, asyncio.Task[str]] = {}
        self._stopping = False

    async def take(self, run_id: str, slice_id: SliceId) -> TakenSlice | None:
        """Claim the slice, or None: done, held by a live session, or its run has ended."""
        if self._stopping:
            return None
        taken = await self._store.take(run_id, slice_id, self._session_id)
        if taken is not None:
            self._held[slice_id] = taken
            await self._fault("rows.after_take")
        return taken

    async def run(self, taken: TakenSlice, program: RowProgram) -> str:
        """Run all rows of a taken slice; returns a SliceEnd. On any error, or if left open, it is given back."""
        task = asyncio.get_running_loop().create_task(self._run_told(taken, program))
        self._running[taken.id] = task
        try:
            end = await task
        except BaseException:
            if self._stopping and self._services is not None:
                await self._services.local.settled()
            await self.give_back(taken)
            raise
        finally:
            self._running.pop(taken.id, None)
        if end == SliceEnd.OPEN:
            await self.give_back(taken)
        self._held.pop(taken.id, None)
        return end

    async def give_back(self, taken: TakenSlice, after_s: float = 0.0) -> None:
        """Release an unfinished slice: it is due again at once, or not before `after_s`."""
        self._held.pop(taken.id, None)
        self._writer.drop(taken.id)
        try:
            await self._store.release([(taken.id, taken.fence)], after_s)
        except OwnershipLostError:
            log.info("slice already taken over", action="slice.release", slice=str(taken.id))

    async def stop(self) -> None:
        """SIGTERM: take nothing new, cancel what runs; each slice is given back by its own `run`."""
        self._stopping = True
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=self._limits.sigterm_grace_s)

    def ids(self) -> list[SliceId]:
        """The slices that this process holds."""
        return list(self._held)

    def held(self) -> int:
        """How many slices this process holds."""
        return len(self._held)

    async def _run_told(self, taken: TakenSlice, program: RowProgram) -> str:
        """In a task of its own: what is bound here is in every line and span of the slice, and in no other."""
        facts, place = taken.facts, {"page": taken.id.page, "slice": taken.id.slice}
        bind_contextvars(run_id=facts.run_id, dataset=facts.key, **place)
        told = {"playlane.dataset": facts.key, "playlane.rows": len(taken.rows) + len(taken.later)}
        told |= {f"playlane.{name}": number for name, number in place.items()}
        with tracing.span("playlane.slice", facts.run_id, told) as span:
            end = await self._run_rows(taken, program)
            if span is not None:
                span.set_attribute("playlane.end", str(end))
            return end

    async def _run_rows(self, taken: TakenSlice, program: RowProgram) -> str:
        written = self._writer.open(taken)
        current_reader.set(self._reads)
        turn = _Turn(
            taken=taken,
            program=program,
            stored={},
            rules=cell_rules(taken),
            stop=self._writer.stop_sign(taken.id.dataset_id),
            stalls=self._stall_watch(),
            lineage=lineage_of(taken.facts.run_id, taken.facts.play, taken.facts.options),
            captures=bool(taken.facts.options.get("capture")),
            boundaries=None if self._waits is None else SliceBoundaries(self._waits, taken),
            context=CallContext(
                org_id=taken.facts.org_id,
                run_id=taken.facts.run_id,
                integration_mode=taken.facts.options.get("integration_mode"),
                refresh=Refresh.of(taken.facts.options, taken.facts.epoch_ms),
                budget=accounts_of(taken.facts.options),
            ),
        )
        first_bytes = sum(row.size_bytes for row in taken.rows)
        await self._run_helping(turn, written, first_bytes, lambda: _there(taken.rows))
        for later in helpings(taken.later, most_bytes=self._limits.helping_bytes):
            if written.done():
                break
            await self._run_later(turn, written, later)
        if not written.done():
            self._writer.finish(taken.id, turn.logs)
        return await written

    def _stall_watch(self) -> StallWatch:
        if self._stalls is None:
            self._stalls = StallWatch(writer=self._writer, room=self._room, every_s=self._limits.stall_log_s)
        return self._stalls

    async def _run_later(
        self, turn: "_Turn", written: "asyncio.Future[str]", later: Sequence[LaterRow]
    ) -> None:
        """Rows whose input is read now, as there is room; one that never fits fails."""
        fitting = [row for row in later if row.size_bytes <= self._room.limit]
        for row in later:
            if row.size_bytes > self._room.limit:
                await self._writer.add(turn.taken.id, too_large_row(row, self._room.limit))
        positions = [row.position for row in fitting]
        size = sum(row.size_bytes for row in fitting)
        if fitting:
            await self._run_helping(turn, written, size, lambda: self._store.read_rows(turn.taken, positions))

    async def _run_helping(
        self,
        turn: "_Turn",
        written: "asyncio.Future[str]",
        size: int,
        read: Callable[[], Awaitable[Sequence[InputRow]]],
    ) -> None:
        """Run rows to their ends, or to the slice's early end."""
        async with self._room.held(size):
            rows = await read()
            turn.stored = await stored_rows(self._store, turn.taken.facts, rows, turn.program.columns)
            drivers = RowDrivers(
                rows, lambda row: self._run_row(turn, row), turn_s=self._limits.row_turn_ms / 1000
            )
            try:
                await asyncio.wait({drivers.done, written}, return_when=asyncio.FIRST_COMPLETED)
                if not written.done():
                    drivers.done.result()
            finally:
                await drivers.cancel()

    async def _run_row(self, turn: "_Turn", row: InputRow) -> None:
        await self._writer.add(turn.taken.id, await self._finished(turn, row))

    async def _finished(self, turn: "_Turn", row: InputRow) -> FinishedRow:
        limits = self._limits
        bind_contextvars(row=row.row_key)
        if turn.stop.is_up:
            return cancelled_row(row)
        if row.crashes >= limits.suspect_crashes + limits.suspect_deaths:
            log.error(
                "row failed: it ends its workers",
                action="row.died",
                row=row.row_key,
                slice=str(turn.taken.id),
            )
            return died_row(row)
        scope = RowScope(
            calls=self._calls,
            context=turn.context,
            dataset=turn.taken.facts.key,
            play=turn.taken.facts.play,
            position=row.position,
            limits=limits,
            logs=turn.logs,
            row_key=row.row_key,
            namespace=turn.taken.facts.namespace,
            services=self._services,
            lineage=turn.lineage,
            trace=RowTrace(run_id=turn.context.run_id, limits=limits, wall_ms=wall_ms)
            if turn.captures
            else None,
            stop=turn.stop,
        )
        if turn.boundaries is not None:
            scope.durable = RowWaiting(scope, turn.boundaries)
        before = turn.stored.get(row.row_key)
        turn.stalls.begin(scope)
        try:
            ended = await run_row(row, turn.program.columns, turn.program.ctx, scope, before, turn.rules)
        finally:
            turn.stalls.end(scope)
        return ended if scope.durable is None else scope.durable.finished(ended)


async def _there(rows: Sequence[InputRow]) -> Sequence[InputRow]:
    return rows


@dataclass(slots=True, eq=False, kw_only=True)
class _Turn:
    """What the rows of a taken slice share."""

    taken: TakenSlice
    program: RowProgram
    stored: Mapping[str, StoredCells]
    rules: CellRules
    stop: StopSign
    stalls: StallWatch
    context: CallContext
    lineage: Lineage
    captures: bool
    boundaries: SliceBoundaries | None = None
    logs: list[tuple[str, LogLine]] = field(default_factory=list)


__all__ = ["RowProgram", "SliceEnd", "SliceLostError", "SliceRunner"]
