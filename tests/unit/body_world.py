"""What survives the death of a process, for tests of bodies: stores in memory, on a clock of their own."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import orjson

from runtime.context.tool_result import ToolResult, tool_result
from runtime.context.workspace import Workspace
from runtime.engine.body_attempt import DriveEnd
from runtime.engine.body_run import BodyRunner
from runtime.engine.csv_files import CsvFiles
from runtime.engine.handle_reads import HandleReads
from runtime.engine.hosts import Services
from runtime.engine.operations import Operations
from runtime.engine.recovery import Recovery
from runtime.engine.row_sources import RowSources
from runtime.engine.secret_values import SecretValues
from runtime.engine.seeding import Seeder
from runtime.engine.tool_calls import CallContext
from runtime.errors import AttemptLostError, RowWaitsError, ServiceUnreachableError, ToolRejectedError
from runtime.model import json_value
from runtime.model.boundary import BodyAt
from runtime.model.dataset import DatasetFacts, NewDataset, OpenDataset, SeededPage, SeedPage
from runtime.model.operation import JournalEntry
from runtime.model.row_wait import NewBoundary, RowWait, WaitKind
from runtime.model.run import ClaimedRun, NewRun, RunFacts, RunPoll, RunState
from runtime.model.tool_output import Origin
from runtime.play import PlayRegistry, define
from runtime.policy.limits import Limits
from runtime.ports import EventSink, LogLine, WaitStore, no_events
from runtime.ports.egress import Egress
from runtime.testing_redis import MemoryRedis
from tests.local_world import Stored, fetches, local_receipts
from tests.unit.pinned_runs import PinnedRuns
from tests.unit.thread_bridge import ThreadBridge, bridge

T = TypeVar("T")
RUN = "run-1"
STEP_S = 0.05  # how far one look at the store moves its clock
FAST = Limits(
    body_poll_s=0.001, body_slow_poll_s=0.001, suspend_grace_s=0.004, body_turns=20_000, slice_rows=2
)


ANY_FILE = CsvFiles(Workspace(roots=(Path("/"),)), FAST)


class InjectedCrashError(BaseException):
    """The process dies here: nothing in a play can catch that."""


def _result(tool: str, value: Any, origin: Origin) -> ToolResult:
    return tool_result(json_value.dumps(value), tool=tool, origin=origin)


def as_jsonb(value: dict[str, Any]) -> dict[str, Any]:
    """What Postgres gives back: the same value, its keys in another order."""
    return orjson.loads(orjson.dumps(value, option=orjson.OPT_SORT_KEYS))


@dataclass
class Boundary:
    due_s: float | None = None
    gives: dict[str, Any] | None = None  # its outcome when it is due
    outcome: dict[str, Any] | None = None
    cancelled: bool = False


@dataclass
class World(PinnedRuns):
    """RunStore, DatasetStore and BodyTools at once."""

    input: Any = None
    play: str = "it"
    dataset_s: dict[str, float] = field(default_factory=dict)
    dataset_outcomes: dict[str, dict[str, Any]] = field(default_factory=dict)
    tool_s: dict[str, float] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)  # by tool, where not "tool(input)"
    lane_far: dict[str, list[float]] = field(
        default_factory=dict
    )  # input -> waits (s) it is told, one a call
    event_s: dict[str, float] = field(default_factory=dict)  # event key -> when it comes
    now_s: float = 0.0
    state: RunState = RunState.QUEUED
    attempt: int = 0
    wakes: int = 0
    wakes_seen: int = -1
    held: bool = False
    result: bytes | None = None
    error: dict[str, Any] | None = None
    entries: list[JournalEntry] = field(default_factory=list)
    boundaries: dict[str, Boundary] = field(default_factory=dict)
    tool_calls: list[str] = field(default_factory=list)
    receipts: dict[str, Any] = field(default_factory=dict)
    logs: dict[tuple[str, int], str] = field(default_factory=dict)
    datasets: dict[str, OpenDataset] = field(default_factory=dict)
    made: dict[str, NewDataset] = field(default_factory=dict)
    pages: list[SeedPage] = field(default_factory=list)
    pages_out: int = 1_000  # so many are claimed as they come
    advances: list[int] = field(default_factory=list)
    faults: dict[str, int] = field(default_factory=dict)
    unreachable: set[str] = field(default_factory=set)
    crashes: int = 0
    reads: HandleReads | None = None
    suspends_refused: int = 0
    resolve_at_suspend: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    run_id: str = RUN
    usage_stores: int = 0
    epoch_ms: int = 0
    kept: Stored = field(default_factory=Stored)  # receipts of steps
    redis: MemoryRedis = field(default_factory=MemoryRedis)
    started: dict[str, NewRun] = field(default_factory=dict)  # child runs

    # ---- runs

    async def start(self, run: NewRun) -> None:
        self.started.setdefault(run.run_id, run)

    async def insert(self, run: NewRun) -> bool:
        raise NotImplementedError

    async def refuse(self, run: NewRun, error: dict[str, Any]) -> bool:
        raise NotImplementedError

    async def cancel(self, run_id: str) -> RunState | None:
        self.state = RunState.CANCELLED
        return self.state

    async def fail(self, run_id: str, error: dict[str, Any]) -> bool:
        raise NotImplementedError

    async def ended(self, run_ids: Sequence[str]) -> set[str]:
        raise NotImplementedError

    async def claim(self, run_id: str, session_id: str) -> ClaimedRun | None:
        news = self.state is RunState.QUEUED or (
            self.state is RunState.WAITING and self.wakes > self.wakes_seen
        )
        if not news and not (self.state is RunState.RUNNING and not self.held):
            return None
        self.state, self.attempt, self.held = RunState.RUNNING, self.attempt + 1, True
        return ClaimedRun(
            run_id=self.run_id,
            org_id="org",
            play=self.play,
            input=self.input,
            options=self.options,
            attempt=self.attempt,
            epoch_ms=self.epoch_ms,
        )

    async def facts(self, run_id: str) -> RunFacts | None:
        return RunFacts(run_id=run_id, org_id="org", play=self.play, input=self.input, options={})

    async def journal(self, run_id: str, after_seq: int = -1) -> list[JournalEntry]:
        return [entry for entry in self.entries if entry.seq > after_seq]

    async def append_journal(self, run_id: str, attempt: int, entries: Sequence[JournalEntry]) -> None:
        self._fence(attempt)
        for entry in entries:
            assert entry.seq == len(self.entries)
            assert entry.op_key not in {known.op_key for known in self.entries}
            self.entries.append(replace(entry, outcome=as_jsonb(entry.outcome)))

    async def arm_timer(self, run_id: str, attempt: int, op_key: str, delay_s: float) -> None:
        self._fence(attempt)
        self.boundaries.setdefault(op_key, Boundary(due_s=self.now_s + delay_s))

    async def arm_event(self, at: BodyAt, wait: NewBoundary) -> None:
        self._fence(at.attempt)
        due_s, gives = self.now_s + wait.due_ms / 1000, wait.timeout_outcome
        if self.event_s.get(str(wait.event_key), due_s) < due_s:
            due_s, gives = max(self.now_s, self.event_s[str(wait.event_key)]), {"ok": wait.event_key}
        self.boundaries.setdefault(at.key, Boundary(due_s=due_s, gives=gives))

    async def rest(
        self, run_id: str, attempt: int, op_key: str, delay_s: float, *, kind: str = "lane"
    ) -> None:
        self._fence(attempt)
        self.boundaries[op_key] = Boundary(due_s=self.now_s + delay_s)

    async def cancel_boundary(self, run_id: str, attempt: int, op_key: str) -> None:
        boundary = self.boundaries.get(op_key)
        if boundary is not None and boundary.outcome is None:
            boundary.cancelled = True

    async def poll(self, run_id: str, attempt: int) -> RunPoll:
        self._fence(attempt)
        if "poll" in self.unreachable:
            raise ServiceUnreachableError("the database does not answer")
        self.advance(STEP_S)
        known = {entry.op_key for entry in self.entries}
        resolved = tuple(
            (key, boundary.outcome)
            for key, boundary in sorted(self.boundaries.items(), key=lambda item: item[1].due_s or 0.0)
            if boundary.outcome is not None and not boundary.cancelled and key not in known
        )
        return RunPoll(wakes=self.wakes, resolved=resolved)

    async def suspend(self, run_id: str, attempt: int, wakes_seen: int) -> bool:
        self._fence(attempt)
        if self.resolve_at_suspend in self.boundaries:
            self._resolve(str(self.resolve_at_suspend))
            self.resolve_at_suspend = None
        if wakes_seen != self.wakes:
            self.suspends_refused += 1
            return False
        self.state, self.held, self.wakes_seen = RunState.WAITING, False, wakes_seen
        return True

    async def end(
        self,
        run_id: str,
        attempt: int,
        state: RunState,
        *,
        result: bytes | None,
        error: dict[str, Any] | None,
    ) -> bool:
        if attempt != self.attempt or self.state is not RunState.RUNNING:
            return False
        self.state, self.result, self.error, self.held = state, result, error, False
        return True

    async def release(self, run_id: str, attempt: int, after_s: float = 0.0) -> None:
        self._fence(attempt)
        self.held = False

    async def add_logs(self, run_id: str, lines: Sequence[LogLine]) -> None:
        for line in lines:
            self.logs.setdefault((line.scope, line.n), line.message)

    # ---- datasets

    async def open(self, new: NewDataset, attempt: int, op_key: str) -> OpenDataset:
        self._fence(attempt)
        if new.namespace not in self.datasets:
            self.datasets[new.namespace] = OpenDataset(
                dataset_id=len(self.datasets) + 1,
                pages_seeded=0,
                pages_total=None,
                next_position=0,
                rows_seeded=0,
                duplicates=0,
                input_digest="",
            )
            self.made[new.namespace] = new
            self.boundaries[op_key] = Boundary()
        return self.datasets[new.namespace]

    async def seed_page(self, page: SeedPage) -> SeededPage:
        self._fence(page.attempt)
        name, opened = self._by_id(page.dataset_id)
        assert page.page == opened.pages_seeded
        assert page.first_position == opened.next_position
        self.pages.append(page)
        self.datasets[name] = replace(
            opened,
            pages_seeded=page.page + 1,
            next_position=page.end_position,
            rows_seeded=opened.rows_seeded + len(page.rows),
            input_digest=page.input_digest,
        )
        left_out = page.end_position - page.first_position - len(page.rows)
        return SeededPage(left_out=left_out, unclaimed=max(0, len(self.pages) - self.pages_out))

    async def finish_seeding(self, dataset_id: int, attempt: int) -> None:
        self._fence(attempt)
        name, opened = self._by_id(dataset_id)
        self.datasets[name] = replace(opened, pages_total=opened.pages_seeded)
        boundary = self.boundaries[f"dataset:{name}"]
        boundary.due_s = self.now_s + self.dataset_s.get(name, 0.1)

    async def advance_dataset(self, dataset_id: int) -> None:
        self.advances.append(dataset_id)

    # ---- tools

    async def execute(
        self, context: CallContext, tool: str, input: Any, options: Any, place: Any
    ) -> tuple[ToolResult, bool]:
        key = f"{tool}:{input}"
        if key in self.receipts:
            return _result(tool, self.receipts[key], Origin.CACHE), True
        self.usage_stores = 0
        if far := self.lane_far.get(str(input)):
            due_ms = far.pop(0) * 1000
            raise RowWaitsError(RowWait(kind=WaitKind.LANE, due_ms=due_ms, detail="lane far"))
        due_s = self.now_s + self.tool_s.get(str(input), 0.0)
        while self.now_s < due_s:
            await asyncio.sleep(0.0005)
        self.tool_calls.append(key)
        self.usage_stores = 0
        if tool == "bad":
            raise ToolRejectedError("no such thing", tool=tool, details={"why": "bad"})
        said = self.answers.get(tool, f"{tool}({input})")
        self.receipts[key] = {"b": 1e16, "a": -0.0, "in": input} if tool == "odd" else said
        return _result(tool, self.receipts[key], Origin.LIVE), False

    async def store_usage(self) -> None:
        self.usage_stores += 1

    # ---- the clock, faults

    def advance(self, by_s: float) -> None:
        self.now_s += by_s
        due = [
            key for key, one in self.boundaries.items() if one.due_s is not None and one.due_s <= self.now_s
        ]
        for key in due:
            self._resolve(key)

    def sleep_until_due(self) -> None:
        """Nobody holds the run: let its next boundary become due."""
        open_s = [
            one.due_s
            for one in self.boundaries.values()
            if one.due_s is not None and one.outcome is None and not one.cancelled
        ]
        if open_s:
            self.advance(max(0.0, min(open_s) - self.now_s))

    async def fault(self, point: str) -> None:
        if point not in self.faults:
            return
        self.faults[point] -= 1
        if self.faults[point] == 0:
            self.crashes += 1
            raise InjectedCrashError(point)

    def _resolve(self, key: str) -> None:
        boundary = self.boundaries[key]
        if boundary.outcome is not None or boundary.cancelled:
            return
        name = key.removeprefix("dataset:")
        if key.startswith("dataset:"):
            rows = self.datasets[name].rows_seeded
            settled = {"ok": {"rows": rows, "completed": rows, "failed": 0}}
            boundary.outcome = self.dataset_outcomes.get(name, settled)
        else:
            boundary.outcome = boundary.gives or {"ok": None}
        self.wakes += 1

    def _by_id(self, dataset_id: int) -> tuple[str, OpenDataset]:
        return next(item for item in self.datasets.items() if item[1].dataset_id == dataset_id)

    def _fence(self, attempt: int) -> None:
        if attempt != self.attempt or self.state is not RunState.RUNNING:
            raise AttemptLostError("another attempt holds the run")


class Datasets:
    """The world's DatasetStore side, whose `facts` takes a dataset id."""

    def __init__(self, world: World) -> None:
        self.open = world.open
        self.seed_page = world.seed_page
        self.finish_seeding = world.finish_seeding
        self._world = world

    async def facts(self, dataset_id: int) -> DatasetFacts | None:
        return dataset_facts(self._world, self._world._by_id(dataset_id)[0])


def dataset_facts(world: World, namespace: str) -> DatasetFacts:
    new = world.made[namespace]
    return DatasetFacts(
        dataset_id=world.datasets[namespace].dataset_id,
        run_id=RUN,
        org_id="org",
        play=world.play,
        key=new.key,
        namespace=namespace,
        columns=new.columns,
        source_hash=new.source_hash,
        on_row_error=new.on_row_error,
        options={},
        write_version=1,
    )


def registry_of(function: Callable[..., Any], name: str = "it") -> PlayRegistry:
    registry = PlayRegistry()
    registry.add(define(name, function))
    return registry


def runner(
    world: World,
    function: Callable[..., Any],
    on: ThreadBridge,
    *,
    limits: Limits = FAST,
    draining: Callable[[], bool] = lambda: False,
    registry: PlayRegistry | None = None,
    egress: Egress | None = None,
    secrets: SecretValues | None = None,
    events: EventSink = no_events,
) -> BodyRunner:
    seeder = Seeder(
        datasets=Datasets(world),
        advance=world.advance_dataset,
        limits=limits,
        fault=world.fault,
        sources=RowSources(ANY_FILE, world.reads),
    )
    services = Services(
        local=local_receipts(world.kept, world.redis, limits, fault=world.fault),
        start_run=world.start,
        fetches=None if egress is None or secrets is None else fetches(egress, secrets, limits),
        secrets=secrets,
    )
    return BodyRunner(
        runs=world,
        operations=Operations(
            runs=world,
            seeder=seeder,
            tools=world,
            waits=cast(WaitStore, world),
            csv=ANY_FILE,
            reads=world.reads,
            limits=limits,
            services=services,
        ),
        secrets=secrets,
        events=events,
        bridge=on,
        limits=limits,
        fault=world.fault,
        session_id=lambda: "session",
        registry=registry or registry_of(function),
        wall_ms=lambda: round(1_000_000 + world.now_s * 1000),
        draining=draining,
    )


def recovery(
    world: World,
    function: Callable[..., Any],
    on: ThreadBridge,
    limits: Limits = FAST,
    secrets: SecretValues | None = None,
) -> Recovery:
    registry = registry_of(function)
    return Recovery(
        runs=world, bridge=on, limits=limits, registry=registry, reads=world.reads, secrets=secrets
    )


def run_to_end(
    function: Callable[..., Any],
    world: World | None = None,
    *,
    limits: Limits = FAST,
    crash_at: tuple[str, int] | None = None,
    attempts: int = 200,
    registry: PlayRegistry | None = None,
) -> World:
    """Drive attempts until the run has ended; with `crash_at`, each attempt crashes there."""
    world = world or World()
    with bridge() as on:
        drives = runner(world, function, on, limits=limits, registry=registry)
        for _ in range(attempts):
            world.faults = {crash_at[0]: crash_at[1]} if crash_at else {}
            try:
                end = drives.drive(RUN)
            except InjectedCrashError:
                continue
            if end is DriveEnd.ENDED:
                return world
            assert end is DriveEnd.WAITING, end
            world.sleep_until_due()
    raise AssertionError(f"the run did not end in {attempts} attempts: {world.state}")


def returned_by(world: World) -> Any:
    """What the body returned; a list and a single value out of the object that is stored for them."""
    result = orjson.loads(world.result or b"")
    return next(iter(result.values())) if set(result) in ({"rows"}, {"value"}) else result
