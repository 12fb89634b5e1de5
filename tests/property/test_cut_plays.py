"""A play of steps, child plays, programs, calls and waits, cut at random points, ends as one that was never cut."""

import asyncio
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime import run_if, steps, waterfall
from runtime.engine.body_attempt import DriveEnd
from runtime.model.run import RunState
from runtime.play import PlayRegistry, define
from tests.unit.body_world import RUN, InjectedCrashError, World, bridge, runner

POINTS = [
    "body.before_journal",
    "body.after_journal",
    "local.before_work",
    "local.before_commit",
    "local.after_commit",
]
CUTS = st.lists(st.tuples(st.sampled_from(POINTS), st.integers(1, 4)), max_size=5)
KINDS = ["step", "slow step", "bad step", "tool", "sleep", "child", "program", "waterfall", "enqueue"]
LEAVES = st.sampled_from(KINDS)
TREES: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: st.tuples(
        st.sampled_from(["gather", "one by one"]), st.lists(inner, min_size=1, max_size=3)
    ),
    max_leaves=6,
)


class Play:
    """The tree as a play; counts how often each step ran."""

    def __init__(self, tree: Any) -> None:
        self.tree = tree
        self.ran: Counter[str] = Counter()
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


def ended(play: Play, cuts: list[tuple[str, int]]) -> World:
    """Each cut is one attempt that dies there, if it comes that far; then the run goes on to its end."""
    world, left = World(), list(cuts)
    with bridge() as on:
        for _ in range(300):
            world.faults = dict([left.pop(0)] if left else [])
            try:
                end = runner(world, play.it, on, registry=play.registry).drive(RUN)
            except InjectedCrashError:
                world.held = False
                continue
            if end is DriveEnd.ENDED:
                return world
            assert end is DriveEnd.WAITING, end
            world.sleep_until_due()
    raise AssertionError(f"the run did not end: {world.state}")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TREES, CUTS)
def test_a_play_cut_anywhere_ends_as_one_that_was_not(tree: Any, cuts: list[tuple[str, int]]) -> None:
    whole = ended(Play(tree), [])
    assert whole.state is RunState.COMPLETED, whole.error
    play = Play(tree)
    world = ended(play, cuts)
    assert (world.state, world.result) == (RunState.COMPLETED, whole.result), world.error
    assert max(Counter(world.tool_calls).values(), default=0) <= 1
    assert world.started.keys() == whole.started.keys()
    in_flight = sum(
        point != "body.after_journal" for point, _ in cuts
    )  # a step in flight at a cut is done again
    assert max(play.ran.values(), default=0) <= 1 + in_flight
    ran, journal = dict(play.ran), list(world.entries)
    world.state, world.held = RunState.QUEUED, False
    with bridge() as on:
        assert runner(world, play.it, on, registry=play.registry).drive(RUN) is DriveEnd.ENDED
    assert (world.result, list(world.entries), dict(play.ran)) == (whole.result, journal, ran)
