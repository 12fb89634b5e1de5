"""A play of all that a body can ask for, cut at random points, ends as one that was never cut."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from runtime import run_if, steps, waterfall
from runtime.engine.body_attempt import DriveEnd
from runtime.engine.handle_reads import HandleReads
from runtime.engine.secret_values import SecretValues
from runtime.known_secrets import known_secrets
from runtime.model.fetch import EgressReply, EgressRequest
from runtime.model.row import RowState
from runtime.model.run import RunState
from runtime.model.stored_row import StoredRow, Stretch
from runtime.play import PlayRegistry, define
from runtime.testing.scripted import ScriptedSecrets
from tests.property.cutting import cuts_at, trees_of
from tests.unit.body_world import FAST, RUN, InjectedCrashError, ThreadBridge, World, bridge, runner

POINTS = [
    "body.before_journal",
    "body.after_journal",
    "local.before_work",
    "local.before_commit",
    "local.after_commit",
]
CUTS = cuts_at(POINTS, most=5)
KINDS = [
    *("step", "slow step", "bad step", "tool", "child", "program", "waterfall", "enqueue"),
    *("sleep", "durable sleep", "event", "no event", "timeout", "csv", "dataset"),
    *("fetch", "fetch with secrets", "customer db"),
]
SECRET = "s3cr3t-value-of-a-key"
TREES = trees_of(KINDS, max_leaves=6)


class Play:
    """The tree as a play; counts how often each step ran."""

    def __init__(self, tree: Any) -> None:
        self.tree = tree
        self.ran: Counter[str] = Counter()
        self.fetched: Counter[str] = Counter()
        self.registry = PlayRegistry()
        self.registry.add(define("it", self.it))
        self.registry.add(define("child", self.child))

    async def it(self, ctx: Any, input: Any) -> Any:
        said = await self.do(ctx, self.tree, "r")
        return [said, await ctx.tools.execute(id="end", tool="t", input=repr(said))]

    async def child(self, ctx: Any, input: Any) -> Any:
        path = input["path"]
        both = await asyncio.gather(
            ctx.step("s", self.step(f"{path}.s")), ctx.tools.execute(id="t", tool="t", input=path)
        )
        return {"step": both[0], "found": both[1]}

    def step(self, path: str) -> Any:
        def run() -> str:
            self.ran[path] += 1
            return path

        return run

    def slow(self, path: str) -> Any:
        async def run() -> str:
            await asyncio.sleep(0.001)
            return self.step(path)()

        return run

    def bad(self, path: str) -> Any:
        def run() -> None:
            self.ran[path] += 1
            raise ValueError(path)

        return run

    async def do(self, ctx: Any, node: Any, path: str) -> Any:
        if isinstance(node, tuple):
            named = [(part, f"{path}{n}") for n, part in enumerate(node[1])]
            if node[0] == "gather":
                return await asyncio.gather(*(self.do(ctx, *one) for one in named))
            return [await self.do(ctx, *one) for one in named]
        return await getattr(self, f"do_{node.replace(' ', '_')}")(ctx, path)

    async def do_step(self, ctx: Any, path: str) -> Any:
        return await ctx.step("same id" if path == "r" else path, self.step(path))

    async def do_slow_step(self, ctx: Any, path: str) -> Any:
        return await ctx.step(path, self.slow(path), semantic_key=path)

    async def do_bad_step(self, ctx: Any, path: str) -> Any:
        try:
            return await ctx.step(path, self.bad(path))
        except Exception as error:
            return str(error)

    async def do_tool(self, ctx: Any, path: str) -> Any:
        return (await ctx.tools.execute(id=path, tool="t", input=path)).data

    async def do_sleep(self, ctx: Any, path: str) -> Any:
        return await asyncio.sleep(0.3, path)

    async def do_durable_sleep(self, ctx: Any, path: str) -> Any:
        return await ctx.sleep(0.3)

    async def do_event(self, ctx: Any, path: str) -> Any:
        return await ctx.wait_for_event(path, key="comes", timeout=1)

    async def do_no_event(self, ctx: Any, path: str) -> Any:
        return await ctx.wait_for_event(path, timeout=0.2, on_timeout="none")

    async def do_timeout(self, ctx: Any, path: str) -> Any:
        try:
            return await asyncio.wait_for(ctx.wait_for_event("never"), 0.2)
        except TimeoutError:
            return "late"

    async def do_csv(self, ctx: Any, path: str) -> Any:
        rows = await ctx.csv(content=f"name,n\n{path},1\n{path},2\n", columns=["n"])
        return [rows.count, rows.columns, list(rows)]

    async def do_dataset(self, ctx: Any, path: str) -> Any:
        made = await ctx.dataset(path, [{"a": 1}]).with_column("x", lambda row, ctx: 1).run()
        walked = [row["name"] async for row in made]
        return [await made.peek(2), (await made.at(-1))["name"], walked]

    async def do_fetch(self, ctx: Any, path: str) -> Any:
        return (await ctx.fetch(path, f"https://a.example/{path}")).text

    async def do_fetch_with_secrets(self, ctx: Any, path: str) -> Any:
        key = await ctx.secrets.get("KEY")
        answer = await ctx.fetch(
            path,
            f"https://b.example/{path}",
            method="POST",
            json={"key": key},
            auth=ctx.secrets.bearer("KEY"),
            idempotency_key=path,
        )
        return [answer.status, answer.text]

    async def do_customer_db(self, ctx: Any, path: str) -> Any:
        return await ctx.customer_db.query("select ? as path", [path], id=path)

    async def do_child(self, ctx: Any, path: str) -> Any:
        found = await ctx.run_play(path, "child", {"path": path})
        return [found["step"], found["found"].data]

    async def do_program(self, ctx: Any, path: str) -> Any:
        program = (
            steps()
            .step("a", lambda row, ctx: ctx.step(f"{path}.a", self.step(f"{path}.a")))
            .step("b", run_if(lambda row: len(row["a"]) % 2 == 0, ctx_tool(path), otherwise="odd"))
            .returns(lambda row, ctx: [row["a"], row["b"]])
        )
        return await ctx.run_steps(program, {"path": path})

    async def do_waterfall(self, ctx: Any, path: str) -> Any:
        legs = waterfall({"none": lambda row, ctx: None, "found": ctx_tool(path), "never": ctx_tool("never")})
        return await ctx.run_steps(legs, {})

    async def do_enqueue(self, ctx: Any, path: str) -> Any:
        return (await ctx.enqueue_play(path, "child", {"path": path})).run_id


def ctx_tool(path: str) -> Any:
    async def call(row: Any, ctx: Any) -> Any:
        return (await ctx.tools.execute(id=f"p{path}", tool="t", input=f"p{path}")).data

    return call


class Web:
    """An Egress that says what it was asked; secrets too."""

    def __init__(self, play: Play) -> None:
        self.play = play

    def is_allowed(self, url: str) -> bool:
        return False

    async def send(self, request: EgressRequest, *, total_ms: float) -> EgressReply:
        self.play.fetched[request.url] += 1
        said = {"url": request.url, **request.secret_headers, "body": request.body.decode()}
        return EgressReply(status=200, reason="", url=request.url, headers={}, body=json.dumps(said).encode())


class SevenRows:
    """SheetReads of any dataset."""

    async def rows(self, stretch: Stretch) -> list[StoredRow]:
        rows = [
            StoredRow(
                position=at,
                row_key=f"k{at}",
                state=RowState.COMPLETED,
                data=f'{{"name":"r{at}"}}',
                cell_meta="{}",
            )
            for at in (range(6, -1, -1) if stretch.from_end else range(stretch.after + 1, 7))
        ]
        return rows[stretch.skip : stretch.skip + stretch.limit]


class Settled(dict[str, Any]):
    """How any dataset ends."""

    def get(self, name: str, default: Any = None) -> Any:
        return {"ok": {"rows": 7, "completed": 7, "failed": 0, "dataset_id": 7}}


def new_world() -> World:
    return World(
        event_s={"comes": 0.2},
        answers={"query_customer_db": {"rows": [{"path": "p"}]}},
        dataset_outcomes=Settled(),
        reads=HandleReads(SevenRows(), replace(FAST, handle_page_rows=3)),
    )


def drive(play: Play, world: World, on: ThreadBridge) -> DriveEnd:
    """One attempt of a process of its own."""
    secrets = SecretValues((ScriptedSecrets({"KEY": SECRET}),), FAST)
    return runner(world, play.it, on, registry=play.registry, egress=Web(play), secrets=secrets).drive(RUN)


def ended(play: Play, cuts: list[tuple[str, int]]) -> World:
    """Each cut is one attempt that dies there, if it comes that far; then the run goes on to its end."""
    world, left = new_world(), list(cuts)
    with bridge() as on:
        for _ in range(300):
            world.faults = dict([left.pop(0)] if left else [])
            try:
                end = drive(play, world, on)
            except InjectedCrashError:
                world.held = False
                continue
            if end is DriveEnd.ENDED:
                return world
            assert end is DriveEnd.WAITING, end
            world.sleep_until_due()
    raise AssertionError(f"the run did not end: {world.state}")


def check_cut(tree: Any, cuts: list[tuple[str, int]]) -> None:
    """The cut run ends as the whole one: same result, no call twice; replayed, it does nothing again."""
    whole = ended(Play(tree), [])
    assert whole.state is RunState.COMPLETED, whole.error
    play = Play(tree)
    world = ended(play, cuts)
    assert (world.state, world.result) == (RunState.COMPLETED, whole.result), world.error
    assert max(Counter(world.tool_calls).values(), default=0) <= 1
    assert world.started.keys() == whole.started.keys()
    # What is in flight at a cut is done again.
    assert max((play.ran | play.fetched).values(), default=0) <= 1 + len(cuts)
    assert SECRET not in repr((world.entries, world.kept.by_key, world.result, world.logs))
    ran, journal = (dict(play.ran), dict(play.fetched)), list(world.entries)
    world.state, world.held = RunState.QUEUED, False
    with bridge() as on:
        assert drive(play, world, on) is DriveEnd.ENDED
    assert (world.result, list(world.entries)) == (whole.result, journal)
    assert (dict(play.ran), dict(play.fetched)) == ran


@pytest.fixture(autouse=True)
def no_secret_is_left() -> Iterator[None]:
    yield
    known_secrets.forget("org")


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(TREES, CUTS)
def test_a_play_cut_anywhere_ends_as_one_that_was_not(tree: Any, cuts: list[tuple[str, int]]) -> None:
    check_cut(tree, cuts)


@pytest.mark.parametrize("kind", KINDS)
def test_each_operation_cut_at_each_point(kind: str) -> None:
    for point in POINTS:
        check_cut(("gather", [kind, "tool"]), [(point, 1), (point, 2)])
