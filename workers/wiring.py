"""Builds one process's parts from its settings: the only place where stores meet the engine."""

import os
import secrets
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any, TypeVar

import structlog

from broker_config.lanes import lane_of
from broker_config.queues import lane_queue
from broker_config.settings import Settings
from runtime.context.workspace import Workspace
from runtime.engine.admission import RunAdmission
from runtime.engine.body_run import BodyRunner
from runtime.engine.budget_wakes import BudgetWakes
from runtime.engine.caller import Caller
from runtime.engine.csv_files import CsvFiles
from runtime.engine.event_delivery import EventDelivery
from runtime.engine.fetching import Fetches, FetchParts
from runtime.engine.handle_reads import HandleReads
from runtime.engine.hosts import Services
from runtime.engine.lane import LaneEngine
from runtime.engine.lane_parts import LaneParts
from runtime.engine.local_receipts import LocalParts, LocalReceipts
from runtime.engine.loop_clock import LoopClock
from runtime.engine.operations import Operations
from runtime.engine.play_versions import PlayVersions
from runtime.engine.poster import Poster
from runtime.engine.recovery import Recovery
from runtime.engine.row_sources import RowSources
from runtime.engine.row_writer import RowWriter
from runtime.engine.run_upkeep import RunUpkeep
from runtime.engine.scheduling import Scheduling
from runtime.engine.secret_values import SecretValues
from runtime.engine.seeding import Seeder
from runtime.engine.settling import Settling
from runtime.engine.slice_run import RowProgram, SliceRunner
from runtime.engine.slice_turns import SliceTurns
from runtime.engine.sweeping import Sweeps
from runtime.engine.tool_calls import ToolCalls
from runtime.engine.waiting_tools import WaitingTools
from runtime.errors import BadInputError
from runtime.execution_api.egress import PublicEgress
from runtime.execution_api.lane_requests import LaneRequests
from runtime.faults import FaultPlan, no_fault
from runtime.known_secrets import ANY_ORG, known_secrets
from runtime.model.slice import TakenSlice
from runtime.play import plays
from runtime.policy.egress import allowed_hosts
from runtime.policy.versions import VersionPolicy
from runtime.ports import Fault
from runtime.postgres_store.runs import PostgresRuns
from runtime.redis_store.lane_states import lane_states
from runtime.redis_store.pacer import RedisPacer
from workers.app import app, load_settings
from workers.configuration import lane_pacing, limits_of, load_plays
from workers.lane_gate import LaneGate
from workers.loop import BackgroundLoop
from workers.publishing import CeleryPublisher
from workers.secrets_of_environment import EnvironmentSecrets
from workers.stores import open_stores
from workers.suspects import SuspectLine

T = TypeVar("T")
SHORTEST_TOKEN = 16  # a shorter one is a word of the local stack, not a secret
log = structlog.get_logger()


class WorkerProcess:
    """All parts of one worker process; those that its role doesn't use are never made."""

    def __init__(self, settings: Settings, role: str) -> None:
        self.settings = settings
        self.role = role
        self.limits = limits_of(settings)
        self.fault: Fault = FaultPlan.parse(settings.faults) if settings.faults else no_fault
        self.session_id = f"{role}-{socket.gethostname()[:40]}-{os.getpid()}-{secrets.token_hex(6)}"
        token = settings.execution_api_token.get_secret_value()
        if len(token) >= SHORTEST_TOKEN:
            known_secrets.add(ANY_ORG, "execution_api_token", token)
        self.bridge = BackgroundLoop()
        self.publisher = CeleryPublisher(app)
        self.draining = threading.Event()
        self.stores = self.bridge.call(
            open_stores(settings, self.limits), timeout_s=self.limits.database_timeout_s
        )
        self._background = ThreadPoolExecutor(max_workers=1, thread_name_prefix="playlane-events")

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Run `work` on the loop and wait for it, for `task_call_s` if nothing else is said."""
        return self.bridge.call(work, timeout_s or self.limits.task_call_s)

    def in_background(self, function: Callable[..., None]) -> Callable[..., None]:
        """`function`, run in order on a thread of its own, so that neither loop nor consumer waits for it."""
        return lambda *arguments, **named: self._background.submit(function, *arguments, **named) and None

    @cached_property
    def settling(self) -> Settling:
        return Settling(
            self.stores.settling,
            self.publisher,
            self.stores.epoch,
            self.fault,
            self.stores.views,
            self.stores.events,
            self.limits,
        )

    @cached_property
    def events(self) -> EventDelivery:
        return EventDelivery(waits=self.stores.waits, settling=self.settling, publisher=self.publisher)

    @cached_property
    def sweeps(self) -> Sweeps:
        stores = self.stores
        return Sweeps(
            sessions=stores.sessions,
            store=stores.settling,
            settling=self.settling,
            publisher=self.publisher,
            epoch=stores.epoch,
            limits=self.limits,
            events=self.events,
            budgets=BudgetWakes(stores.budgets, self.settling),
            more=(
                ("deadlines", self.upkeep.deadlines),
                ("samples", self.upkeep.sample),
                *((("schedules", self.schedules.sweep),) if self.role == "control" else ()),
            ),
        )

    @cached_property
    def upkeep(self) -> RunUpkeep:
        stores = self.stores
        return RunUpkeep(stores.runs, stores.samples, lambda: lane_states(stores.state, self.limits))

    @cached_property
    def schedules(self) -> Scheduling:
        return Scheduling(self.stores.schedules, self.publisher, org_id=self.settings.org_id, plays=plays.all)

    @cached_property
    def versions(self) -> PlayVersions:
        return PlayVersions(self.stores.runs, self.limits, VersionPolicy(self.settings.play_version_policy))

    @cached_property
    def runs(self) -> PostgresRuns:
        return self.stores.runs

    # ---- control

    @cached_property
    def control(self) -> RunAdmission:
        return RunAdmission(
            runs=self.stores.runs, publisher=self.publisher, plays=plays, limits=self.limits, fault=self.fault
        )

    # ---- plays and rows

    @cached_property
    def caller(self) -> Caller:
        return Caller(
            session_id=self.session_id,
            receipts=self.stores.receipts,
            leases=self.stores.leases,
            inbox=self.stores.inbox,
            poster=Poster(self.publisher, self.limits),
            limits=self.limits,
            lane_is_read=lambda lane: self.stores.epoch.queue_empty(lane_queue(lane)),
        )

    @cached_property
    def calls(self) -> ToolCalls:
        return ToolCalls(
            caller=self.caller,
            catalog=self.stores.api,
            lane_of=lambda provider: lane_of(provider).provider,
            session_id=self.session_id,
            limits=self.limits,
            waiting=WaitingTools(events=self.stores.api.event_tools, limits=self.limits),
        )

    @cached_property
    def local(self) -> LocalReceipts:
        """Steps and fetches that this process does itself."""
        return LocalReceipts(
            LocalParts(
                session_id=self.session_id,
                receipts=self.stores.receipts,
                leases=self.stores.leases,
                limits=self.limits,
                clock=LoopClock(),
                fault=self.fault,
            )
        )

    @cached_property
    def egress(self) -> PublicEgress:
        """The way out for fetches."""
        try:
            allowed = allowed_hosts(self.settings.egress_allow)
        except ValueError as error:
            raise BadInputError(f"PLAYLANE_EGRESS_ALLOW: {error}") from None
        return PublicEgress(allowed, self.limits)

    @cached_property
    def secrets(self) -> SecretValues:
        """Secrets of plays: of the environment, else of the execution API."""
        return SecretValues((EnvironmentSecrets(), self.stores.api.secrets), self.limits)

    @cached_property
    def fetches(self) -> Fetches:
        return Fetches(
            FetchParts(
                egress=self.egress,
                pacer=self.pacer,
                secrets=self.secrets,
                limits=self.limits,
                clock=LoopClock(),
            )
        )

    @cached_property
    def services(self) -> Services:
        """What steps, child plays and fetches of rows and bodies stand on."""
        return Services(
            local=self.local,
            start_run=self.control.admit,
            fetches=self.fetches,
            secrets=self.secrets,
            budgets=self.stores.budgets,
        )

    @cached_property
    def reads(self) -> HandleReads:
        return HandleReads(self.stores.reads, self.limits)

    @cached_property
    def bodies(self) -> BodyRunner:
        csv = CsvFiles(Workspace.of(self.settings.workspace), self.limits, open_url=self.egress.stream)
        seeder = Seeder(
            datasets=self.stores.datasets,
            advance=self.settling.advance,
            limits=self.limits,
            fault=self.fault,
            sources=RowSources(csv, self.reads),
            events=self.stores.events,
        )
        operations = Operations(
            runs=self.stores.runs,
            seeder=seeder,
            tools=self.calls,
            csv=csv,
            reads=self.reads,
            limits=self.limits,
            waits=self.stores.waits,
            services=self.services,
        )
        return BodyRunner(
            runs=self.stores.runs,
            operations=operations,
            bridge=self.bridge,
            session_id=lambda: self.session_id,
            limits=self.limits,
            fault=self.fault,
            draining=self.draining.is_set,
            budgets=self.stores.budgets,
            secrets=self.secrets,
            version_policy=self.versions.policy,
            events=self.stores.events,
        )

    @cached_property
    def slices(self) -> SliceRunner:
        writer = RowWriter(
            self.stores.slices,
            session_id=self.session_id,
            limits=self.limits,
            fault=self.fault,
            take_usage=self.caller.usage.take,
            give_back_usage=self.caller.usage.give_back,
            events=self.stores.events,
        )
        return SliceRunner(
            store=self.stores.slices,
            writer=writer,
            calls=self.calls,
            session_id=self.session_id,
            limits=self.limits,
            waits=self.stores.waits,
            fault=self.fault,
            reads=self.reads,
            services=self.services,
        )

    @cached_property
    def slice_turns(self) -> SliceTurns:
        return SliceTurns(self.slices, self.stores.waiting_slices, self.limits)

    @cached_property
    def suspects(self) -> SuspectLine:
        return SuspectLine(self.limits.suspects_in_line)

    @cached_property
    def recovery(self) -> Recovery:
        return Recovery(
            runs=self.stores.runs,
            bridge=self.bridge,
            limits=self.limits,
            reads=self.reads,
            secrets=self.secrets,
            version_policy=self.versions.policy,
        )

    def recover(self, taken: TakenSlice) -> RowProgram:
        """The columns of a taken slice's dataset; blocking, for a Celery thread."""
        recovered = self.recovery.columns(taken.facts)
        return RowProgram(columns=recovered.columns, ctx=recovered.ctx)

    # ---- lanes

    @cached_property
    def pacer(self) -> RedisPacer:
        """Tickets of this session; asked for on the loop."""
        return RedisPacer(
            self.stores.state,
            self.limits,
            LoopClock(),
            session_id=self.session_id,
            lane_pacing=lane_pacing,
        )

    @cached_property
    def lane_gate(self) -> LaneGate:
        """Shared by all consumers that this process has had."""
        return LaneGate(self.limits)

    @cached_property
    def lane(self) -> LaneEngine:
        """Made on the loop that it belongs to; so the first to ask is never the loop itself."""
        return self.bridge.call(self._make_lane())

    async def _make_lane(self) -> LaneEngine:
        stores = self.stores
        return LaneEngine(
            LaneParts(
                session_id=self.session_id,
                leases=stores.leases,
                receipts=stores.receipts,
                inbox=stores.inbox,
                pacer=self.pacer,
                catalog=stores.api,
                requests=LaneRequests(stores.api),
                limits=self.limits,
                fault=self.fault,
                clock=LoopClock(),
                origin=stores.api.origin,
                runs=stores.runs,
                budgets=stores.budgets,
                events=stores.events,
            )
        )


_process: tuple[int, WorkerProcess] | None = None
_role = "control"
_lock = threading.Lock()


def set_role(role: str) -> None:
    """What this process (and a child forked from it) is."""
    global _role
    _role = role


def process() -> WorkerProcess:
    """This process's parts, made at first use: never before a fork."""
    global _process
    with _lock:
        if _process is None or _process[0] != os.getpid():
            settings = load_settings()
            load_plays(settings)
            _process = (os.getpid(), WorkerProcess(settings, _role))
        return _process[1]


__all__ = ["WorkerProcess", "process", "set_role"]
