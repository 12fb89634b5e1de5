"""One slice: run its rows concurrently, hand them to the row writer, end when they are written."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from runtime.engine.row_run import died_row, run_row
from runtime.engine.row_scope import RowScope
from runtime.engine.row_writer import RowWriter, SliceEnd
from runtime.engine.tool_calls import CallContext, ToolCalls
from runtime.errors import OwnershipLostError, SliceLostError
from runtime.model.row import InputRow
from runtime.model.slice import SliceId, TakenSlice
from runtime.play import Column
from runtime.policy.freshness import Refresh
from runtime.policy.limits import Limits
from runtime.ports import Fault, LogLine, SliceStore

log = structlog.get_logger()


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
    ) -> None:
        self._store = store
        self._writer = writer
        self._calls = calls
        self._session_id = session_id
        self._limits = limits
        self._fault = fault
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
        task = asyncio.get_running_loop().create_task(self._run_rows(taken, program))
        self._running[taken.id] = task
        try:
            end = await task
        except BaseException:
            await self.give_back(taken)
            raise
        finally:
            self._running.pop(taken.id, None)
        if end == SliceEnd.OPEN:
            await self.give_back(taken)
        self._held.pop(taken.id, None)
        return end

    async def give_back(self, taken: TakenSlice) -> None:
        """Release an unfinished slice: it is due again at once."""
        self._held.pop(taken.id, None)
        self._writer.drop(taken.id)
        try:
            await self._store.release([(taken.id, taken.fence)])
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

    def held(self) -> int:
        """How many slices this process holds."""
        return len(self._held)

    async def _run_rows(self, taken: TakenSlice, program: RowProgram) -> str:
        written = self._writer.open(taken)
        logs: list[tuple[str, LogLine]] = []
        context = CallContext(
            org_id=taken.facts.org_id,
            run_id=taken.facts.run_id,
            integration_mode=taken.facts.options.get("integration_mode"),
            refresh=Refresh.of(taken.facts.options, taken.facts.epoch_ms),
        )
        loop = asyncio.get_running_loop()
        rows = [loop.create_task(self._run_row(taken, row, program, context, logs)) for row in taken.rows]
        try:
            ended_early = await _all_rows(rows, written)
            if not ended_early:
                self._writer.finish(taken.id, logs)
            return await written
        finally:
            await _cancel(rows)

    async def _run_row(
        self,
        taken: TakenSlice,
        row: InputRow,
        program: RowProgram,
        context: CallContext,
        logs: list[tuple[str, LogLine]],
    ) -> None:
        scope = RowScope(
            calls=self._calls,
            context=context,
            dataset=taken.facts.key,
            position=row.position,
            limits=self._limits,
            logs=logs,
        )
        limits = self._limits
        if row.crashes >= limits.suspect_crashes + limits.suspect_deaths:
            log.error(
                "row failed: it ends its workers", action="row.died", row=row.row_key, slice=str(taken.id)
            )
            finished = died_row(row)
        else:
            finished = await run_row(row, program.columns, program.ctx, scope)
        await self._writer.add(taken.id, finished)


async def _all_rows(rows: Sequence[asyncio.Task[None]], written: "asyncio.Future[str]") -> bool:
    """Wait for all rows, the first fatal error, or the slice's early end (True)."""
    if not rows:
        return False
    every = asyncio.gather(*rows)
    await asyncio.wait({every, written}, return_when=asyncio.FIRST_COMPLETED)
    if written.done():
        every.cancel()
        await asyncio.gather(every, return_exceptions=True)
        return True
    await every
    return False


async def _cancel(rows: Sequence[asyncio.Task[None]]) -> None:
    """Cancel rows that still run and wait for them a moment; an author may swallow one cancellation."""
    left = [row for row in rows if not row.done()]
    for row in left:
        row.cancel()
    if left:
        await asyncio.wait(left, timeout=1.0)
    for row in rows:
        if row.done() and not row.cancelled():
            row.exception()


__all__ = ["RowProgram", "SliceEnd", "SliceLostError", "SliceRunner"]
