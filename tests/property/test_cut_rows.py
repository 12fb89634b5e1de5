"""Rows of all that a resolver can ask for, cut at random points, end as rows that were never cut."""

import asyncio
import json
from collections import Counter
from collections.abc import Coroutine, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from runtime import run_if, steps, waterfall
from runtime.context.own_tasks import watch_tasks
from runtime.context.play_context import PlayContext
from runtime.engine.body import Body
from runtime.engine.event_delivery import EventDelivery
from runtime.engine.hosts import Services
from runtime.engine.row_writer import RowWriter
from runtime.engine.secret_values import SecretValues
from runtime.engine.settling import Settling
from runtime.engine.slice_run import RowProgram, SliceRunner
from runtime.engine.tool_calls import ToolCalls
from runtime.errors import ToolUnavailableError
from runtime.known_secrets import known_secrets
from runtime.model.boundary import Event
from runtime.model.failure import FailureClass
from runtime.model.row import RowState
from runtime.model.run import NewRun
from runtime.model.slice import SliceId
from runtime.play import Column, PlayRegistry, define
from runtime.ports import EventSink, no_events
from runtime.testing.scripted import ScriptedEgress, ScriptedSecrets, ScriptedTools
from runtime.testing_redis import MemoryRedis
from tests.contract.memory_world import memory_world
from tests.contract.stores_world import LIMITS
from tests.local_world import Stored, fetches, local_receipts
from tests.property.cutting import cuts_at, trees_of
from tests.unit.test_slice_waits import Epoch, Published

FAST = replace(LIMITS, row_rest_ms=1.0, row_short_sleep_s=0.001, writer_flush_ms=1.0, slice_read_bytes=9)
POINTS = [
    "rows.after_take",
    "rows.before_flush",
    "rows.after_flush",
    "local.before_work",
    "local.before_commit",
    "local.after_commit",
]
CUTS = cuts_at(POINTS, most=4)
KINDS = [
    *("step", "shared step", "bad step", "tool", "child", "program", "waterfall", "enqueue"),
    *("sleep", "event", "no event", "fetch", "customer db"),
]
TREES = trees_of(KINDS, max_leaves=5)


class Rows:
    """A tree as the one column of four rows; counts how often each step ran."""

    def __init__(self, tree: Any) -> None:
        self.tree = tree
        self.ran: Counter[str] = Counter()
        self.started: set[str] = set()
        self.tools = ScriptedTools(
            {"t": lambda asked: f"v:{asked}", "away": self.away, "query_customer_db": {"rows": [{"a": 1}]}}
        )
        self.web = ScriptedEgress({"https://a.example": lambda request: {"asked": request.url}})
        self.registry = PlayRegistry()
        self.registry.add(define("child", self.child))
        self.play = define("it", self.child)

    async def resolver(self, row: Any, ctx: Any) -> Any:
        said = await self.do(ctx, self.tree, f"{row['k']}.")
        return [said, (await ctx.tools.execute(id="end", tool="t", input=repr(said))).data]

    async def child(self, ctx: Any, input: Any) -> Any:
        path = input["path"]
        both = await asyncio.gather(
            ctx.step("s", self.step(f"{path}.s")), ctx.tools.execute(id="t", tool="t", input=path)
        )
        return {"step": both[0], "found": both[1]}

    def away(self, input: Any) -> None:
        told = {"failure_class": FailureClass.PROVIDER_UNAVAILABLE.value}
        raise ToolUnavailableError("not now", tool="away", code="away", retryable=True, details=told)

    def step(self, path: str) -> Any:
        def run() -> str:
            self.ran[path] += 1
            return path

        return run

    async def do(self, ctx: Any, node: Any, path: str) -> Any:
        if isinstance(node, tuple):
            named = [(part, f"{path}{n}") for n, part in enumerate(node[1])]
            if node[0] == "gather":
                return await asyncio.gather(*(self.do(ctx, *one) for one in named))
            return [await self.do(ctx, *one) for one in named]
        return await getattr(self, f"do_{node.replace(' ', '_')}")(ctx, path)

    async def do_step(self, ctx: Any, path: str) -> Any:
        return await ctx.step(path, self.step(path))

    async def do_shared_step(self, ctx: Any, path: str) -> Any:
        return await ctx.step(path, self.step(path), semantic_key=path)

    async def do_bad_step(self, ctx: Any, path: str) -> Any:
        def bad() -> None:
            self.ran[path] += 1
            raise ValueError(path)

        try:
            return await ctx.step(path, bad)
        except Exception as error:
            return str(error)

    async def do_tool(self, ctx: Any, path: str) -> Any:
        return (await ctx.tools.execute(id=path, tool="t", input=path)).data

    async def do_child(self, ctx: Any, path: str) -> Any:
        found = await ctx.run_play(path, "child", {"path": path})
        return [found["step"], found["found"].data]

    async def do_program(self, ctx: Any, path: str) -> Any:
        program = (
            steps()
            .step("a", lambda row, ctx: ctx.step(f"{path}.a", self.step(f"{path}.a")))
            .step("b", run_if(lambda row: len(row["a"]) % 2 == 0, tool(path), otherwise="odd"))
            .returns(lambda row, ctx: [row["a"], row["b"]])
        )
        return await ctx.run_steps(program, {"path": path})

    async def do_waterfall(self, ctx: Any, path: str) -> Any:
        legs = waterfall(
            {
                "away": lambda row, ctx: ctx.tools.execute(id=f"w{path}", tool="away", input=path),
                "none": lambda row, ctx: None,
                "found": tool(path),
                "never": tool("never"),
            }
        )
        return await ctx.run_steps(legs, {})

    async def do_enqueue(self, ctx: Any, path: str) -> Any:
        return (await ctx.enqueue_play(path, "child", {"path": path})).run_id

    async def do_sleep(self, ctx: Any, path: str) -> Any:
        return await ctx.sleep(60)

    async def do_event(self, ctx: Any, path: str) -> Any:
        return await ctx.wait_for_event(path, key="comes")

    async def do_no_event(self, ctx: Any, path: str) -> Any:
        return await ctx.wait_for_event(path, timeout=90, on_timeout="none")

    async def do_fetch(self, ctx: Any, path: str) -> Any:
        url = f"https://a.example/{path}"
        return (await ctx.fetch(path, url, auth=ctx.secrets.bearer("KEY"))).text

    async def do_customer_db(self, ctx: Any, path: str) -> Any:
        return await ctx.customer_db.query("select ? as path", [path], id=path)


def tool(path: str) -> Any:
    async def call(row: Any, ctx: Any) -> Any:
        return (await ctx.tools.execute(id=f"p{path}", tool="t", input=f"p{path}")).data

    return call


class Process:
    """One life of a row process; at its cut nothing of it moves any more."""

    def __init__(self, cut: tuple[str, int] | None) -> None:
        self._point, self._left = cut or ("", 0)
        self.died = asyncio.Event()
        self._stuck: list[asyncio.Future[None]] = []

    async def fault(self, point: str) -> None:
        if point == self._point and not self.died.is_set():
            self._left -= 1
            if self._left == 0:
                self.died.set()
        if self.died.is_set():
            self._stuck.append(asyncio.get_running_loop().create_future())
            await self._stuck[-1]

    async def lives(self, work: Coroutine[Any, Any, Any]) -> bool:
        """Whether it lived to the end of `work`."""
        task, died = asyncio.ensure_future(work), asyncio.ensure_future(self.died.wait())
        await asyncio.wait({task, died}, return_when=asyncio.FIRST_COMPLETED)
        died.cancel()
        if self.died.is_set():
            task.cancel()
            await asyncio.wait({task}, timeout=5)
            return False
        await task
        return True


class Dying:
    """A store as a process sees it: after its death it reaches nothing."""

    def __init__(self, store: Any, process: Process) -> None:
        self._store, self._process = store, process

    def __getattr__(self, name: str) -> Any:
        if self._process.died.is_set():
            raise asyncio.CancelledError
        return getattr(self._store, name)


class World:
    """Four rows in two slices, and what outlives processes."""

    def __init__(self, rows: Rows, events: EventSink) -> None:
        self.rows = rows
        self.sink = events
        self.stores = memory_world(FAST)
        self.kept, self.redis = Stored(), MemoryRedis(FAST)
        self.dataset_id = 0
        self.published = Published()
        epoch: Any = Epoch()
        nobody = Process(None)
        self.settling = Settling(self.stores.settling, self.published, epoch, nobody.fault)
        self.events = EventDelivery(waits=self.stores.waits, settling=self.settling, publisher=self.published)
        self.lives = 0
        self.processes: list[Process] = []

    async def open(self) -> None:
        self.dataset_id = await self.stores.seeded(1)
        await self.settling.advance(self.dataset_id)

    async def life(self, cut: tuple[str, int] | None) -> bool:
        """A process works off what there is; whether it lived."""
        self.lives += 1
        process, session = Process(cut), f"rows-{self.lives}"
        self.processes.append(process)
        await self.stores.sessions.open(session, role="rows", hostname="h", pid=1, ttl_s=1e9)
        runner, ctx = self._runner(process, session)
        program = RowProgram(columns=(Column("found", self.rows.resolver),), ctx=ctx)
        try:
            for _ in range(200):
                if not self.published.pages:
                    return True
                page = self.published.pages[0]
                for number in page.slices:
                    if not await process.lives(self._slice(runner, program, page.page, number)):
                        return False
                self.published.pages.pop(0)
        finally:
            await self.stores.sessions.close(session)
        raise AssertionError("the rows run again and again")

    async def _slice(self, runner: SliceRunner, program: RowProgram, page: int, number: int) -> None:
        slice_id = SliceId(dataset_id=self.dataset_id, page=page, slice=number)
        taken = await runner.take("r1", slice_id)
        if taken is not None:
            await runner.run(taken, program)
        await self.settling.settle("r1", self.dataset_id, page)
        await self.settling.wake()

    def _runner(self, process: Process, session: str) -> tuple[SliceRunner, Any]:
        secrets = SecretValues((ScriptedSecrets({"KEY": "s3cr3t-value"}),), FAST)
        services = Services(
            local=local_receipts(self.kept, self.redis, FAST, fault=process.fault),
            start_run=self._start,
            fetches=fetches(self.rows.web, secrets, FAST),
            secrets=secrets,
        )
        store: Any = Dying(self.stores.slices, process)
        waits: Any = Dying(self.stores.waits, process)
        writer = RowWriter(
            store,
            session_id=session,
            limits=FAST,
            fault=process.fault,
            take_usage=tuple,
            give_back_usage=lambda usage: None,
            events=self.sink,
        )
        tools: Any = self.rows.tools
        calls = ToolCalls(caller=tools, catalog=tools, lane_of=str, session_id=session, limits=FAST)
        runner = SliceRunner(
            store=store,
            writer=writer,
            calls=calls,
            session_id=session,
            limits=FAST,
            fault=process.fault,
            waits=waits,
            services=services,
        )
        body = Body(self.rows.play, {}, make_ctx=PlayContext, limits=FAST, registry=self.rows.registry)
        return runner, body.ctx

    async def _start(self, run: NewRun) -> None:
        self.rows.started.add(run.run_id)

    async def go_on(self) -> bool:
        """What a sweep repairs, an event or a moment later; False: every row has ended."""
        states = {row.state for row in (await self.stores.rows(self.dataset_id)).values()}
        if not states & {RowState.PENDING, RowState.RUNNING, RowState.WAITING}:
            return False
        await self.settling.settle("r1", self.dataset_id, 0)
        if self.published.pages:
            return True
        await self.events.deliver(Event(org_id="org", event_id=f"e{self.lives}", key="comes", payload="here"))
        await self.stores.age(61)
        await self.settling.wake()
        return True

    async def cells(self) -> dict[str, Any]:
        return await self.stores.sheet("org", "play", "sheet")


def sheet_of(rows: Rows, cuts: list[tuple[str, int]], events: EventSink = no_events) -> dict[str, Any]:
    """The sheet when every row has ended; each cut is the death of one process, if it comes that far."""
    left = list(cuts)

    async def work() -> dict[str, Any]:
        watch_tasks(asyncio.get_running_loop())
        world = World(rows, events)
        await world.open()
        for _ in range(100):
            await world.life(left.pop(0) if left else None)
            if not await world.go_on():
                return await world.cells()
        raise AssertionError("the rows did not end")

    return asyncio.run(work())


def check_cut(tree: Any, cuts: list[tuple[str, int]]) -> None:
    """The cut rows end as the whole ones: same cells, no call twice."""
    whole = Rows(tree)
    expected = sheet_of(whole, [])
    assert all("found" in cells for cells in expected.values()), expected
    rows = Rows(tree)
    assert sheet_of(rows, cuts) == expected
    asked = Counter(json.dumps([call.tool, call.input], sort_keys=True) for call in rows.tools.called)
    assert max(asked.values()) <= 1
    assert rows.started == whole.started
    # What is in flight at a cut is done again.
    done = rows.ran | Counter(one.url for one in rows.web.fetched)
    assert max(done.values(), default=0) <= 1 + len(cuts)


@pytest.fixture(autouse=True)
def no_secret_is_left() -> Iterator[None]:
    yield
    known_secrets.forget("org")


@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(TREES, CUTS)
def test_rows_cut_anywhere_end_as_rows_that_were_not(tree: Any, cuts: list[tuple[str, int]]) -> None:
    check_cut(tree, cuts)


@pytest.mark.parametrize("kind", KINDS)
def test_each_operation_cut_at_each_point(kind: str) -> None:
    for point in POINTS:
        check_cut(("gather", [kind, "tool"]), [(point, 1), (point, 2)])
