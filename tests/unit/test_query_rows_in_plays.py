"""A query's rows in a play: a dataset's input, kept in cells and results; each page is asked for once."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from runtime.context.query_rows import QueryRows
from runtime.context.tool_result import ToolResult, tool_result
from runtime.engine.call_making import asked_call
from runtime.engine.tool_calls import CallContext, CallPlace
from runtime.errors import RowWaitsError
from runtime.model import json_value
from runtime.model.call import Answer, AnswerState, Call
from runtime.model.call_options import CallOptions
from runtime.model.query_page import QueryPage
from runtime.model.row_wait import RowWait, WaitKind
from runtime.model.run import RunState
from runtime.model.tool import ToolMetadata
from runtime.play import PlayRegistry, define
from runtime.testing import plays as testing_plays
from runtime.testing.plays import PlayOutcome, run_play
from runtime.testing.scripted import ScriptedTools
from tests.unit.body_world import FAST, RUN, World, run_to_end, runner
from tests.unit.thread_bridge import bridge

PAGED = replace(testing_plays.QUICK, query_page_rows=100)
TOTAL = 250


def page_of(page: QueryPage | None, total: int = TOTAL) -> dict[str, Any]:
    """A tool that gives three rows at once and the others by pages."""
    if page is None:
        return {"rows": [{"n": n} for n in range(3)], "dataset": {"total_rows": total}}
    return {"rows": [{"n": n} for n in range(page.offset, min(page.offset + page.page_size, total))]}


class PagedTools(ScriptedTools):
    pages: list[tuple[int, int] | None]

    def __init__(self, tools: Any) -> None:
        super().__init__(tools)
        self.pages = last_pages
        self.pages.clear()

    async def _made(self, call: Call) -> Answer:
        self.pages.append(None if call.page is None else (call.page.offset, call.page.page_size))
        output = json_value.dumps(page_of(call.page))
        return Answer(key=call.key, state=AnswerState.COMPLETED, output=output, run_id=call.run_id)


last_pages: list[tuple[int, int] | None] = []


@pytest.fixture(autouse=True)
def paged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testing_plays, "ScriptedTools", PagedTools)


def ended(body: Any, child: Any = None) -> PlayOutcome:
    registry = PlayRegistry()
    registry.add(define("it", body))
    if child is not None:
        registry.add(define("child", child))
    outcome = run_play("it", tools={"numbers": None}, limits=PAGED, registry=registry)
    assert outcome.ok, outcome.error
    return outcome


async def query(ctx: Any) -> QueryRows:
    return await ctx.tools.query(id="q", tool="numbers", input={"count": TOTAL})


def test_it_is_the_input_of_a_dataset() -> None:
    async def it(ctx: Any, input: Any) -> Any:
        rows = await query(ctx)
        walked = [row["n"] async for row in rows]
        done = await ctx.dataset("d", rows).with_column("twice", lambda row, ctx: row["n"] * 2).run(key="n")
        return {"walked": len(walked), "count": done.count, "last": await done.at(-1)}

    outcome = ended(it)
    assert outcome.result == {"walked": TOTAL, "count": TOTAL, "last": {"n": 249, "twice": 498}}
    assert last_pages == [None, (3, 100), (103, 100), (203, 47)], "each page once, whoever read it"
    assert [row["n"] for row in outcome.rows("d")] == list(range(TOTAL))


def test_it_is_kept_in_a_cell_and_comes_back_for_columns_datasets_and_the_body() -> None:
    seen: list[Any] = []

    async def total(row: Any, ctx: Any) -> int:
        seen.append(type(row["found"]))
        return sum([one["n"] async for one in row["found"]])

    async def it(ctx: Any, input: Any) -> Any:
        first = await (
            ctx.dataset("a", [{"name": "x"}])
            .with_column("found", lambda row, ctx: query(ctx))
            .with_column("total", total)
            .run(key="name")
        )
        kept = (await first.at(0))["found"]
        second = await ctx.dataset("b", kept).with_column("y", lambda row, ctx: row["n"]).run(key="n")
        return {"total": (await first.at(0))["total"], "last": await kept.at(-1), "rows": second.count}

    outcome = ended(it)
    assert outcome.result == {"total": sum(range(TOTAL)), "last": {"n": 249}, "rows": TOTAL}
    assert seen == [QueryRows]
    assert last_pages == [None, (3, 100), (103, 100), (203, 47), (249, 1)]
    assert isinstance(outcome.rows("a")[0]["found"], QueryRows), "a later run meets it alive"


def test_a_result_names_it_with_its_first_rows() -> None:
    async def it(ctx: Any, input: Any) -> Any:
        return {"rows": await query(ctx)}

    async def alone(ctx: Any, input: Any) -> Any:
        return await query(ctx)

    shown = {"kind": "query", "query": "q", "tool": "numbers", "count": TOTAL}
    for body in (it, alone):
        assert ended(body).result == {"rows": {**shown, "preview": [{"n": 0}, {"n": 1}, {"n": 2}]}}


def test_a_child_play_returns_it_alive() -> None:
    async def child(ctx: Any, input: Any) -> Any:
        return {"found": await query(ctx)}

    async def it(ctx: Any, input: Any) -> Any:
        found = (await ctx.run_play("c", "child", {}))["found"]
        return (await found.at(-1))["n"]

    assert ended(it, child).result == {"value": 249}


# ---- keys


def test_a_page_has_one_key_in_every_run_and_place() -> None:
    def key(run_id: str, place: str, query: str = "k", offset: int = 3) -> str:
        page = QueryPage(limit=9, offset=offset, page_size=4, total_rows=9)
        options = CallOptions(is_private=True, page=page, query=query)
        asked = asked_call(
            CallContext(org_id="o", run_id=run_id),
            ToolMetadata(tool="t", provider="p"),
            {"a": 1},
            options,
            CallPlace(parts=(place,)),
        )
        return asked.under(None, "inbox").key

    assert key("r1", "body") == key("r2", "row")
    assert len({key("r1", "b"), key("r1", "b", query="other"), key("r1", "b", offset=7)}) == 3
    assert key("r1", "body", query="") != key("r2", "body", query=""), "of a query that nobody named"


# ---- seeding

SEEDED = replace(FAST, query_page_rows=4, slice_rows=2)


class PagedWorld(World):
    """A tool whose pages are paid for once; `now` is how it answers to what wasn't asked before."""

    def __init__(self, total: int = 40) -> None:
        super().__init__()
        self.total = total
        self.paid: dict[Any, Any] = {}
        self.far_at: set[int] = set()
        self.lost: set[int] = set()

    async def execute(self, context: Any, tool: str, input: Any, options: Any, place: Any) -> Any:
        page = options.page
        key = (options.query, page and (page.offset, page.page_size))
        if page is not None and page.offset in self.far_at:
            self.far_at.discard(page.offset)
            raise RowWaitsError(RowWait(kind=WaitKind.LANE, due_ms=5_000.0, detail="lane far"))
        if page is not None and page.offset in self.lost:
            return tool_result(b'{"rows":[]}', tool=tool), False
        found = self.paid.get(key)
        if found is None:
            self.tool_calls.append(str(key))
            found = self.paid[key] = json_value.dumps(page_of(page, self.total))
        return self._result(found, tool), False

    def _result(self, output: bytes, tool: str) -> ToolResult:
        return tool_result(output, tool=tool, call="the-call")


async def seeds(ctx: Any, input: Any) -> Any:
    rows = await query(ctx)
    await ctx.dataset("d", rows).with_column("x", lambda row, ctx: 1).run(key="n")
    await asyncio.sleep(5)
    return rows.count


def seeded(world: World) -> list[str]:
    return [row.row_key for page in world.pages for row in page.rows]


@pytest.mark.parametrize("crash", [1, 2, 3])
def test_resumed_seeding_pays_for_no_page_twice(crash: int) -> None:
    world = PagedWorld()
    run_to_end(seeds, world, limits=SEEDED, crash_at=("body.after_seed_page", crash))
    assert world.state is RunState.COMPLETED, world.error
    assert world.crashes > 0
    assert seeded(world) == [str(n) for n in range(40)]
    assert len(world.tool_calls) == len(set(world.tool_calls)) == 1 + 10


def test_seeding_rests_while_a_page_is_far_away_and_goes_on() -> None:
    world = PagedWorld()
    world.far_at = {7, 19}
    run_to_end(seeds, world, limits=SEEDED)
    assert seeded(world) == [str(n) for n in range(40)]
    assert {key for key in world.boundaries if key.startswith("lane:")} == {"lane:dataset:d"}


def test_a_changed_beginning_fails_the_run() -> None:
    world = PagedWorld()
    with bridge() as on:
        world.faults = {"body.after_seed_page": 2}
        with pytest.raises(BaseException, match="after_seed_page"):
            runner(world, seeds, on, limits=SEEDED).drive(RUN)
        world.held = False
        world.paid = {
            key: value.replace(b'"n":4', b'"n":400') if key[1] else value for key, value in world.paid.items()
        }
        world.faults = {}
        runner(world, seeds, on, limits=SEEDED).drive(RUN)
    assert world.state is RunState.FAILED and world.error is not None
    assert world.error["code"] == "input_changed" and 'dataset "d"' in world.error["message"]


def test_a_tool_that_gives_fewer_rows_than_it_said_fails_the_dataset() -> None:
    world = PagedWorld()
    world.lost = {23}
    run_to_end(seeds, world, limits=SEEDED)
    assert world.error is not None
    assert world.error["code"] == "dataset_read" and "gave none from 23 on" in world.error["message"]
