"""One process in memory that runs plays: the real engine over stores in memory, on a clock that jumps."""

import asyncio
import threading
from collections import deque
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from runtime.context.own_tasks import watch_tasks
from runtime.context.workspace import Workspace
from runtime.engine.admission import RunAdmission
from runtime.engine.body_run import BodyRunner
from runtime.engine.csv_files import CsvFiles
from runtime.engine.event_delivery import EventDelivery
from runtime.engine.fetching import Fetches, FetchParts
from runtime.engine.handle_reads import HandleReads
from runtime.engine.hosts import Services
from runtime.engine.local_receipts import LocalParts, LocalReceipts
from runtime.engine.loop_clock import LoopClock
from runtime.engine.operations import Operations
from runtime.engine.plain_pacer import PlainPacer
from runtime.engine.recovery import Recovery
from runtime.engine.row_sources import RowSources
from runtime.engine.row_writer import RowWriter
from runtime.engine.secret_values import SecretValues
from runtime.engine.seeding import Seeder
from runtime.engine.settling import Settling
from runtime.engine.slice_run import RowProgram, SliceRunner
from runtime.engine.sweeping import Sweeps
from runtime.engine.tool_calls import ToolCalls
from runtime.errors import PlaylaneError, PlayVersionUnavailableError, RunFatalError
from runtime.faults import no_fault
from runtime.model.call import Call
from runtime.model.page import PageOut
from runtime.model.slice import SliceId
from runtime.play import PlayRegistry
from runtime.policy.limits import Limits
from runtime.testing import MemoryStores
from runtime.testing.scripted import ScriptedEgress, ScriptedSecrets, ScriptedTools
from runtime.testing_redis import MemoryLeases, MemoryRedis

T = TypeVar("T")
SESSION = "test"


class ThreadLoop:
    """A loop in a thread of its own, as a worker process has one."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        watch_tasks(self.loop)
        self._thread = threading.Thread(target=self.loop.run_forever, name="playlane-test-loop", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        return self.submit(work).result(timeout_s)

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self) -> None:
        """End what still runs, then the loop."""
        self.call(self._finish())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def _finish(self) -> None:
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self.loop.shutdown_default_executor()


class Outbox:
    """A Publisher and a DispatchEpoch: messages wait here to be worked off in order."""

    def __init__(self) -> None:
        self.messages: deque[str | PageOut] = deque()

    async def resume(self, run_ids: Sequence[str]) -> None:
        self.messages.extend(run_ids)

    async def pages_out(self, pages: Sequence[PageOut]) -> None:
        self.messages.extend(pages)

    async def post(self, lane: str, calls: Sequence[Call]) -> None: ...

    async def epoch(self) -> str:
        return "epoch"

    async def queue_empty(self, queue: str) -> bool:
        return True


class PlayStage:
    """Messages are worked off one at a time, in the thread that asks."""

    def __init__(
        self,
        *,
        tools: ScriptedTools,
        egress: ScriptedEgress,
        secrets: ScriptedSecrets,
        registry: PlayRegistry,
        limits: Limits,
        workspace: Sequence[str],
    ) -> None:
        self.now_s = 1_700_000_000.0
        self.limits = limits
        self.bridge = ThreadLoop()
        self.stores = MemoryStores(lambda: self.now_s, limits)
        self.outbox = Outbox()
        self._tools = tools
        self._leases = MemoryLeases(MemoryRedis(limits))
        self._registry = registry
        self.settling = Settling(self.stores.settling, self.outbox, self.outbox, no_fault)
        self.events = EventDelivery(waits=self.stores.waits, settling=self.settling, publisher=self.outbox)
        self.admission = RunAdmission(
            runs=self.stores.runs, publisher=self.outbox, plays=registry, limits=limits, fault=no_fault
        )
        self.sweeps = Sweeps(
            sessions=self.stores.sessions,
            store=self.stores.settling,
            settling=self.settling,
            publisher=self.outbox,
            epoch=self.outbox,
            limits=limits,
            events=self.events,
        )
        self.bridge.call(self._open())
        self._secrets = SecretValues((secrets,), limits)
        self._services = self._make_services(egress)
        calls = ToolCalls(
            caller=tools,  # type: ignore[arg-type]
            catalog=tools,
            lane_of=str,
            session_id=SESSION,
            limits=limits,
        )
        reads = HandleReads(self.stores.reads, limits)
        self._bodies = self._make_bodies(calls, reads, workspace)
        self._slices = self._make_slices(calls, reads)
        self._recovery = Recovery(
            runs=self.stores.runs,
            bridge=self.bridge,
            limits=limits,
            registry=registry,
            reads=reads,
            secrets=self._secrets,
        )

    def work_off(self) -> bool:
        """The next message; False if there is none."""
        if not self.outbox.messages:
            return False
        message = self.outbox.messages.popleft()
        if isinstance(message, str):
            self._bodies.drive(message)
        else:
            for number in message.slices:
                self._run_slice(message, number)
        return True

    def sweep(self) -> None:
        """Repair what no message tells."""
        self.bridge.call(self.sweeps.once())

    def close(self) -> None:
        self.bridge.close()

    def _run_slice(self, page: PageOut, number: int) -> None:
        """As a row worker does it."""
        slice_id = SliceId(dataset_id=page.dataset_id, page=page.page, slice=number)
        taken = self.bridge.call(self._slices.take(page.run_id, slice_id))
        if taken is None:
            return
        try:
            recovered = self._recovery.columns(taken.facts)
            program = RowProgram(columns=recovered.columns, ctx=recovered.ctx)
            self.bridge.call(self._slices.run(taken, program))
        except RunFatalError as error:
            self.bridge.call(self._slices.give_back(taken))
            if not isinstance(error, PlayVersionUnavailableError):
                self.bridge.call(self.stores.runs.fail(page.run_id, error.to_payload()))
        except PlaylaneError:
            self.bridge.call(self._slices.give_back(taken))
        self.bridge.call(self.settling.settle(page.run_id, page.dataset_id, page.page))
        self.bridge.call(self.settling.wake())

    async def _open(self) -> None:
        day_s = 365 * 24 * 3600.0  # the clock jumps; this process doesn't die of it
        await self.stores.sessions.open(SESSION, role="test", hostname="test", pid=1, ttl_s=100 * day_s)
        await self._leases.register(SESSION, first=True)

    def _make_services(self, egress: ScriptedEgress) -> Services:
        local = LocalReceipts(
            LocalParts(
                session_id=SESSION,
                receipts=self.stores.receipts,
                leases=self._leases,
                limits=self.limits,
                clock=LoopClock(),
                fault=no_fault,
            )
        )
        fetches = Fetches(
            FetchParts(
                egress=egress,
                pacer=PlainPacer(lambda _: self.limits.groups_per_lane_max, self.limits.groups),
                secrets=self._secrets,
                limits=self.limits,
                clock=LoopClock(),
            )
        )
        return Services(
            local=local,
            start_run=self.admission.admit,
            fetches=fetches,
            secrets=self._secrets,
            budgets=self.stores.budgets,
        )

    def _make_bodies(self, calls: ToolCalls, reads: HandleReads, workspace: Sequence[str]) -> BodyRunner:
        csv = CsvFiles(Workspace.of(tuple(workspace)), self.limits)
        seeder = Seeder(
            datasets=self.stores.datasets,
            advance=self.settling.advance,
            limits=self.limits,
            fault=no_fault,
            sources=RowSources(csv, reads),
        )
        operations = Operations(
            runs=self.stores.runs,
            seeder=seeder,
            tools=calls,
            csv=csv,
            reads=reads,
            limits=self.limits,
            waits=self.stores.waits,
            services=self._services,
        )
        return BodyRunner(
            runs=self.stores.runs,
            operations=operations,
            bridge=self.bridge,
            session_id=lambda: SESSION,
            limits=self.limits,
            fault=no_fault,
            registry=self._registry,
            wall_ms=lambda: int(self.now_s * 1000),
            secrets=self._secrets,
        )

    def _make_slices(self, calls: ToolCalls, reads: HandleReads) -> SliceRunner:
        writer = RowWriter(
            self.stores.slices,
            session_id=SESSION,
            limits=self.limits,
            fault=no_fault,
            take_usage=self._tools.take_usage,
            give_back_usage=self._tools.give_back_usage,
        )
        return SliceRunner(
            store=self.stores.slices,
            writer=writer,
            calls=calls,
            session_id=SESSION,
            limits=self.limits,
            waits=self.stores.waits,
            fault=no_fault,
            reads=reads,
            services=self._services,
        )
