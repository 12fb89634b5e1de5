"""One slice: run its rows concurrently, hand them to the row writer, end when they are written."""

import asyncio
from collections import Counter

import structlog
from structlog.contextvars import bind_contextvars

from runtime import tracing
from runtime.context.dataset_handle import current_reader
from runtime.engine.byte_room import ByteRoom
from runtime.engine.defects import Defects
from runtime.engine.handle_reads import HandleReads
from runtime.engine.hosts import Services
from runtime.engine.row_writer import RowWriter, SliceEnd
from runtime.engine.slice_helpings import SliceHelpings
from runtime.engine.slice_turn import RowProgram, SliceTurn
from runtime.engine.stall_watch import StallWatch
from runtime.engine.tool_calls import ToolCalls
from runtime.errors import OwnershipLostError, SliceLostError
from runtime.model.slice import SliceId, TakenSlice
from runtime.policy.limits import Limits
from runtime.ports import Fault, SliceStore, WaitStore

log = structlog.get_logger()


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
        self.defects = Defects(limits.run_crashes, limits.defect_works)

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
        if self._stopping:  # told so since the slice was taken
            await self.give_back(taken)
            return SliceEnd.OPEN
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

    def held_by_run(self) -> Counter[str]:
        """How many slices of each run this process holds."""
        return Counter(taken.facts.run_id for taken in self._held.values())

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
        current_reader.set(self._reads)
        turn = SliceTurn(
            taken=taken,
            program=program,
            calls=self._calls,
            services=self._services,
            limits=self._limits,
            stop=self._writer.stop_sign(taken.id.dataset_id),
            stalls=self._stall_watch(),
        )
        rows = SliceHelpings(
            turn,
            store=self._store,
            writer=self._writer,
            waits=self._waits,
            room=self._room,
            limits=self._limits,
        )
        return await rows.run()

    def _stall_watch(self) -> StallWatch:
        if self._stalls is None:
            self._stalls = StallWatch(writer=self._writer, room=self._room, every_s=self._limits.stall_log_s)
        return self._stalls


__all__ = ["RowProgram", "SliceEnd", "SliceLostError", "SliceRunner"]
