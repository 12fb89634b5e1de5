"""Builds one process's parts from its settings: the only place where stores meet the engine."""

import os
import secrets
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module
from typing import Any, TypeVar

import structlog
from redis.asyncio import Redis

from broker_config.lanes import lane_of
from broker_config.queues import lane_queue
from broker_config.settings import Settings
from runtime.engine.admission import RunAdmission
from runtime.engine.body_run import BodyRunner
from runtime.engine.caller import Caller
from runtime.engine.lane import LaneEngine
from runtime.engine.lane_parts import LaneParts
from runtime.engine.loop_clock import LoopClock
from runtime.engine.operations import Operations
from runtime.engine.poster import Poster
from runtime.engine.recovery import Recovery
from runtime.engine.row_writer import RowWriter
from runtime.engine.seeding import Seeder
from runtime.engine.settling import Settling
from runtime.engine.slice_run import RowProgram, SliceRunner
from runtime.engine.sweeping import Sweeps
from runtime.engine.tool_calls import ToolCalls
from runtime.errors import BadInputError
from runtime.execution_api.client import ExecutionApiClient
from runtime.execution_api.lane_requests import LaneRequests
from runtime.execution_api.tokens import StaticTokenSource
from runtime.faults import FaultPlan, no_fault
from runtime.model.rate_scope import LanePacing
from runtime.model.slice import TakenSlice
from runtime.model.tool import Counts, PacingRule
from runtime.play import plays
from runtime.policy.limits import DEFAULT_LIMITS, Limits
from runtime.ports import Fault
from runtime.postgres_store.datasets import PostgresDatasets
from runtime.postgres_store.pool import open_pool
from runtime.postgres_store.receipts import PostgresReceipts
from runtime.postgres_store.runs import PostgresRuns
from runtime.postgres_store.sessions import PostgresSessions
from runtime.postgres_store.settling import PostgresSettling
from runtime.postgres_store.slices import PostgresSlices
from runtime.redis_store.connect import connect, require_noeviction
from runtime.redis_store.dispatch_epoch import RedisDispatchEpoch
from runtime.redis_store.inbox import RedisInbox
from runtime.redis_store.leases import RedisLeases
from runtime.redis_store.pacer import RedisPacer
from workers.app import app, load_settings
from workers.loop import BackgroundLoop
from workers.publishing import CeleryPublisher
from workers.suspects import SuspectLine

T = TypeVar("T")
log = structlog.get_logger()


def limits_of(settings: Settings) -> Limits:
    """The policy's limits with the deployment's overrides; unknown names and impossible values are refused."""
    kinds = {field.name: type(getattr(DEFAULT_LIMITS, field.name)) for field in fields(Limits)}
    for name, value in settings.limits.items():
        if name not in kinds:
            near = get_close_matches(name, kinds, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise BadInputError(f"PLAYLANE_LIMITS: there is no limit {name!r}{hint}")
        if kinds[name] in (int, float) and (
            isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0
        ):
            raise BadInputError(f"PLAYLANE_LIMITS: {name} must be a number above 0, not {value!r}")
        if kinds[name] is int and value != int(value):
            raise BadInputError(f"PLAYLANE_LIMITS: {name} must be a whole number, not {value!r}")
    return Limits(**settings.limits)


def load_plays(settings: Settings) -> None:
    """Import the modules that define plays; raises BadInputError that names the module and why."""
    for module in settings.play_modules:
        try:
            import_module(module)
        except ImportError as error:
            raise BadInputError(f"play module {module!r} can't be imported: {error}") from error


def lane_pacing(name: str) -> LanePacing:
    """The lane table's word on a lane."""
    lane = lane_of(name)
    return LanePacing(
        groups=lane.groups,
        rules=tuple(
            PacingRule(
                limit=pace.limit, per_ms=pace.per_s * 1000, counts=Counts(pace.counts), burst=pace.burst
            )
            for pace in lane.pacing
        ),
        concurrency=lane.concurrency,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """The process's connections to Postgres, Redis and the execution API, all on its loop."""

    sessions: PostgresSessions
    runs: PostgresRuns
    datasets: PostgresDatasets
    settling: PostgresSettling
    slices: PostgresSlices
    receipts: PostgresReceipts
    leases: RedisLeases
    inbox: RedisInbox
    epoch: RedisDispatchEpoch
    api: ExecutionApiClient
    state: Redis
    close: Callable[[], Any]


async def open_stores(settings: Settings, limits: Limits) -> Stores:
    """Connect; raises ServiceUnreachableError if a server doesn't answer."""
    pool = open_pool(settings.database_url.get_secret_value(), limits)
    await pool.open()
    state = connect(settings.state_url, limits)
    broker = connect(settings.broker_url, limits)
    await require_noeviction(state)
    tokens = StaticTokenSource(value=settings.execution_api_token.get_secret_value())
    api = ExecutionApiClient(
        settings.execution_api_url,
        tokens,
        limits,
        control_url=settings.control_api_url,
        test_fault=settings.execution_api_test_fault,
    )

    async def close() -> None:
        await api.close()
        await state.aclose()
        await broker.aclose()
        await pool.close()

    return Stores(
        sessions=PostgresSessions(pool, limits),
        runs=PostgresRuns(pool, limits),
        datasets=PostgresDatasets(pool, limits),
        settling=PostgresSettling(pool, limits),
        slices=PostgresSlices(pool, limits),
        receipts=PostgresReceipts(pool, limits),
        leases=RedisLeases(state, limits),
        inbox=RedisInbox(state, limits),
        epoch=RedisDispatchEpoch(state, broker, limits),
        api=api,
        state=state,
        close=close,
    )


class WorkerProcess:
    """All parts of one worker process; those that its role doesn't use are never made."""

    def __init__(self, settings: Settings, role: str) -> None:
        self.settings = settings
        self.role = role
        self.limits = limits_of(settings)
        self.fault: Fault = FaultPlan.parse(settings.faults) if settings.faults else no_fault
        self.session_id = f"{role}-{socket.gethostname()[:40]}-{os.getpid()}-{secrets.token_hex(6)}"
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
        return Settling(self.stores.settling, self.publisher, self.stores.epoch, self.fault)

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
        )

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
        )

    @cached_property
    def bodies(self) -> BodyRunner:
        seeder = Seeder(
            datasets=self.stores.datasets, advance=self.settling.advance, limits=self.limits, fault=self.fault
        )
        operations = Operations(runs=self.stores.runs, seeder=seeder, tools=self.calls, limits=self.limits)
        return BodyRunner(
            runs=self.stores.runs,
            operations=operations,
            bridge=self.bridge,
            session_id=lambda: self.session_id,
            limits=self.limits,
            fault=self.fault,
            draining=self.draining.is_set,
        )

    @cached_property
    def slices(self) -> SliceRunner:
        writer = RowWriter(
            self.stores.slices,
            session_id=self.session_id,
            limits=self.limits,
            fault=self.fault,
            take_usage=self.caller.take_usage,
            give_back_usage=self.caller.give_back_usage,
        )
        return SliceRunner(
            store=self.stores.slices,
            writer=writer,
            calls=self.calls,
            session_id=self.session_id,
            limits=self.limits,
            fault=self.fault,
        )

    @cached_property
    def suspects(self) -> SuspectLine:
        return SuspectLine(self.limits.suspects_in_line)

    @cached_property
    def recovery(self) -> Recovery:
        return Recovery(runs=self.stores.runs, bridge=self.bridge, limits=self.limits)

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


__all__ = ["Stores", "WorkerProcess", "limits_of", "load_plays", "open_stores", "process", "set_role"]
