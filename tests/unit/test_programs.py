"""Step programs and waterfalls, in rows and in bodies; what a cell's meta says of where it comes from."""

import itertools
import json
from typing import Any

import pytest

from runtime import run_if, steps, waterfall
from runtime.context.columns import column, columns
from runtime.context.play_context import PlayContext
from runtime.context.tool_result import tool_result
from runtime.engine.hosts import Services
from runtime.engine.provenance import RowTrace
from runtime.engine.row_run import run_row
from runtime.engine.row_scope import RowScope
from runtime.engine.tool_calls import CallContext
from runtime.errors import (
    PlayDefinitionError,
    ProviderExhaustedError,
    RowWaitsError,
    ToolCallError,
    ToolOutcomeUnknownError,
    ToolRejectedError,
    ToolUnavailableError,
)
from runtime.model import json_value
from runtime.model.lineage import Lineage
from runtime.model.row import FinishedRow, InputRow, RowState
from runtime.model.row_wait import RowWait, WaitKind
from runtime.model.run import NewRun
from runtime.model.tool_output import Origin
from runtime.play import PlayRegistry, define
from runtime.policy.limits import Limits
from runtime.testing_redis import MemoryRedis
from tests.local_world import Stored, local_receipts
from tests.unit.body_world import run_to_end

NOT_ONE: Any = True  # no function
ROW = InputRow(position=3, row_key="k3", input={"name": "acme", "n": 2})
LIMITS = Limits(children_per_row=3)


def unavailable(failure_class: str, status: int | None, **more: Any) -> ToolUnavailableError:
    details = {
        "failure_class": failure_class, "operation": "op", "status": status,
        "retry_after_ms": None, "request_id": "q-1", **more,
    }  # fmt: skip
    return ToolUnavailableError("not now", tool="t", code="nope", retryable=True, details=details)


class Tools:
    """Answers by tool name: a value, None for no result, an exception to raise; an answered call is a receipt."""

    def __init__(self, **answers: Any) -> None:
        self.answers = answers
        self.made: list[str] = []
        self.receipts: set[str] = set()
        self.far: dict[str, int] = {}

    async def execute(
        self, context: Any, tool: str, input: Any, options: Any = None, place: Any = None
    ) -> Any:
        key = f"{tool}:{json.dumps(input)}:{place.parts if options and options.force else ''}"
        if self.far.get(tool, 0) > 0:
            self.far[tool] -= 1
            raise RowWaitsError(RowWait(kind=WaitKind.LANE, due_ms=60_000.0, detail="far"))
        cached = key in self.receipts
        answer = self.answers.get(tool, f"{tool}({input})")
        if not cached:
            self.made.append(tool)
        if isinstance(answer, Exception):
            raise answer
        self.receipts.add(key)
        return tool_result(json_value.dumps(answer), tool=tool, origin=Origin.LIVE), cached

    async def store_usage(self) -> None: ...


class Row:
    """One row over stores that outlive its turns."""

    budgets: Any = None
    accounts: tuple[str, ...] = ()

    def __init__(
        self, *made: Any, tools: Tools | None = None, capture: bool = False, **children: Any
    ) -> None:
        self.tools = tools or Tools()
        self.columns = made
        self.stored, self.redis = Stored(), MemoryRedis()
        self.capture = capture
        self.started: dict[str, NewRun] = {}
        self.registry = PlayRegistry()
        self.logs: list[Any] = []
        for name, function in children.items():
            self.registry.add(define(name, function))

    async def turn(self, run_id: str = "r", row: InputRow = ROW) -> FinishedRow:
        clock = itertools.count(1_000)
        scope = RowScope(
            calls=self.tools,  # type: ignore[arg-type]
            context=CallContext(org_id="o", run_id=run_id, budget=self.accounts),
            position=row.position,
            row_key=row.row_key,
            dataset="d",
            namespace="d",
            limits=LIMITS,
            logs=self.logs,
            services=Services(
                local=local_receipts(self.stored, self.redis, LIMITS),
                start_run=self.start,
                budgets=self.budgets,
            ),
            lineage=Lineage(root_run_id=run_id, plays=("it",)),
            trace=RowTrace(run_id=run_id, limits=LIMITS, wall_ms=lambda: next(clock))
            if self.capture
            else None,
        )
        return await run_row(row, self.columns, PlayContext(self), scope)  # type: ignore[arg-type]

    async def start(self, run: NewRun) -> None:
        self.started.setdefault(run.run_id, run)

    @property
    def play(self) -> Any:
        return define("it", body)

    limits = LIMITS
    captures = False


async def body(ctx: Any, input: Any) -> Any: ...


def data(row: FinishedRow) -> dict[str, Any]:
    assert row.state is RowState.COMPLETED, row.error
    return json.loads(row.data)


def meta(row: FinishedRow) -> dict[str, Any]:
    return json.loads(row.cell_meta)


def ask(tool: str, key: str = "name") -> Any:
    return lambda row, ctx: ctx.tools.execute(id=tool, tool=tool, input=row[key])


def col(name: str, resolver: Any, **options: Any) -> Any:
    return column("here", name, resolver, **options)


THREE = (
    steps()
    .step("a", ask("find"))
    .step("b", lambda row, ctx: row["n"] + 1)
    .step("c", run_if(lambda row: row["b"] > 5, lambda row, ctx: "big", otherwise="small"))
)


async def test_a_program_is_a_column_each_step_sees_the_ones_before() -> None:
    ended = await Row(col("x", THREE)).turn()
    assert data(ended)["x"] == {"a": "find(acme)", "b": 3, "c": "small"}
    assert {path: one["state"] for path, one in meta(ended)["x"]["steps"].items()} == {
        "x.a": "completed", "x.b": "completed", "x.c": "skipped",
    }  # fmt: skip


async def test_returns_and_programs_within_programs() -> None:
    inner = steps().step("d", lambda row, ctx: row["b"] * 10).returns(lambda row, ctx: row["d"] + row["n"])
    program = THREE.step("in", inner).returns(lambda row, ctx: [row["in"], row["c"], row["name"]])
    assert data(await Row(col("x", program)).turn())["x"] == [32, "small", "acme"]


async def test_with_columns_makes_a_column_of_each_step() -> None:
    ended = await Row(*columns("here", THREE)).turn()
    assert data(ended) == {"name": "acme", "n": 2, "a": "find(acme)", "b": 3, "c": "small"}
    assert meta(ended)["c"]["state"] == "skipped"
    with pytest.raises(PlayDefinitionError, match="returns"):
        columns("here", THREE.returns(lambda row, ctx: 1))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: steps().step("", 1), "named by non-empty text"),
        (lambda: steps().step("waterfall_attempts", 1), "waterfall_attempts"),
        (lambda: steps().step("a", 1).step("a", 2), "added twice"),
        (lambda: steps().returns(NOT_ONE), "takes a function"),
        (lambda: steps(on_unavailable="maybe"), '"fail" or "continue"'),
        (lambda: run_if(NOT_ONE, 1), "a function of the row first"),
        (lambda: run_if(bool, run_if(bool, 1)), "run_if within run_if"),
        (lambda: waterfall({}), "legs in order by name"),
        (lambda: steps().step("a", lambda: 1), "takes (row, ctx)"),
    ],
)
def test_wrong_programs_are_refused_where_they_are_written(make: Any, said: str) -> None:
    with pytest.raises(PlayDefinitionError) as refused:
        make()
    assert said in str(refused.value)


UNAVAILABLE = [
    (unavailable("provider_unavailable", 402), "provider_account", 402),
    (unavailable("transient", 503), "upstream", 503),
    (unavailable("gateway_502", 502), "upstream", 502),
    (unavailable("rate_limited", 429, retry_after_ms=1500), "rate_limit", 429),
    (
        ProviderExhaustedError("used up", tool="t", retryable=True, details={"provider": "p"}),
        "rate_limit",
        None,
    ),
]
WATERFALL = waterfall({"one": ask("one"), "two": ask("two"), "three": ask("three")})


@pytest.mark.parametrize(("error", "category", "status"), UNAVAILABLE)
async def test_a_provider_that_cannot_serve_is_a_leg_and_the_next_is_asked(
    error: ToolCallError, category: str, status: int | None
) -> None:
    ended = await Row(col("x", WATERFALL), tools=Tools(one=error, two="found")).turn()
    value = data(ended)["x"]
    assert (value["value"], value["from"], list(value["waterfall_attempts"])) == (
        "found",
        "two",
        ["one", "two", "three"],
    )
    leg, found, skipped = value["waterfall_attempts"].values()
    assert (leg["status"], leg["category"], leg["statusCode"], leg["retryable"]) == (
        "unavailable",
        category,
        status,
        True,
    )
    assert leg["retryAfterMs"] == error.details.get("retry_after_ms") and leg["error"] == str(error)
    assert (found, skipped) == ({"status": "completed", "result": "found"}, {"status": "skipped"})
    assert "completed_at" in meta(ended)["x"]


async def test_a_miss_moves_on_and_counts_as_an_answer() -> None:
    ended = await Row(col("x", WATERFALL), tools=Tools(one=None, two=None, three=None)).turn()
    value = data(ended)["x"]
    assert value["value"] is None and value["from"] is None
    assert [one["status"] for one in value["waterfall_attempts"].values()] == ["no_result"] * 3
    assert "completed_at" in meta(ended)["x"]


@pytest.mark.parametrize("program", [WATERFALL, steps(on_unavailable="continue").step("one", ask("one"))])
async def test_try_later_is_never_kept_as_there_is_none(program: Any) -> None:
    late = unavailable("transient", 503)
    ended = await Row(
        col("x", program, stale_after_seconds=60), tools=Tools(one=late, two=late, three=None)
    ).turn()
    cell = meta(ended)["x"]
    assert cell["state"] == "completed" and "completed_at" not in cell and "stale_at" not in cell
    alone = await Row(
        *columns("here", steps(on_unavailable="continue").step("one", ask("one"))), tools=Tools(one=late)
    ).turn()
    assert data(alone)["one"] is None and "completed_at" not in meta(alone)["one"]


@pytest.mark.parametrize(
    "error", [ToolRejectedError("bad input", tool="t"), ToolOutcomeUnknownError("perhaps paid", tool="t"),
              unavailable("auth", 401), ValueError("a slip")],
)  # fmt: skip
async def test_what_is_no_matter_of_the_provider_fails_the_row(error: Exception) -> None:
    tools = Tools(one=error, two="found")
    ended = await Row(col("x", WATERFALL), tools=tools).turn()
    assert ended.state is RowState.FAILED and tools.made == ["one"]
    assert meta(ended)["x"]["steps"]["x.one"]["state"] == "failed"


async def test_without_the_option_an_unavailable_provider_fails_the_row() -> None:
    tools = Tools(one=unavailable("transient", 503))
    assert (await Row(col("x", steps().step("one", ask("one"))), tools=tools).turn()).state is RowState.FAILED


async def test_a_row_that_waits_in_a_waterfall_goes_on_and_pays_each_leg_once() -> None:
    row = Row(col("x", WATERFALL), tools=Tools(one=None, two="found"))
    row.tools.far = {"two": 2}
    assert [(await row.turn()).state for _ in range(2)] == [RowState.WAITING] * 2
    assert data(await row.turn())["x"]["from"] == "two"
    assert row.tools.made == ["one", "two"]


def test_programs_in_a_body_are_replayed() -> None:
    async def it(ctx: Any, input: Any) -> Any:
        program = WATERFALL.step("note", lambda row, ctx: ctx.step("s", lambda: row["name"]))
        return await ctx.run_steps(program, {"name": "x"})

    world = run_to_end(it, crash_at=("body.after_journal", 1))
    kept = json.loads(world.result or b"")
    assert (kept["value"], kept["from"]) == ("one(x)", "one")
    assert world.tool_calls == ["one:x"]
    assert kept["waterfall_attempts"]["note"] == {"status": "completed", "result": "x"}


# ---- steps and child plays in rows


async def test_a_step_of_a_row_is_kept_by_row_column_and_number() -> None:
    ran: list[str] = []

    async def twice(row: Any, ctx: Any) -> Any:
        first = await ctx.step("a", lambda: ran.append("a") or len(ran))
        again = await ctx.step("a", lambda: ran.append("a") or len(ran))
        return [first, again, (await ctx.tools.execute(id="far", tool="far", input=1)).data]

    row = Row(col("x", twice), col("y", lambda row, ctx: ctx.step("a", lambda: ran.append("y") or len(ran))))
    row.tools.far = {"far": 1}
    assert (await row.turn()).state is RowState.WAITING
    ended = data(await row.turn())
    assert (ended["x"], ended["y"], ran) == ([1, 2, "far(1)"], 3, ["a", "a", "y"])
    other = InputRow(position=4, row_key="k4", input=ROW.input)
    assert data(await row.turn(row=other))["x"][:2] == [4, 5]
    assert data(await row.turn("another run"))["y"] == 9


async def test_a_shared_step_of_a_row_answers_the_same_row_of_later_runs() -> None:
    ran: list[int] = []
    row = Row(col("x", lambda row, ctx: ctx.step("a", lambda: ran.append(1) or len(ran), semantic_key="k")))
    moved = InputRow(position=9, row_key=ROW.row_key, input=ROW.input)
    assert [data(await row.turn("r1"))["x"], data(await row.turn("r2", moved))["x"]] == [1, 1]
    assert data(await row.turn("r2", InputRow(position=3, row_key="other", input=ROW.input)))["x"] == 2


async def test_a_child_play_in_a_row_has_its_own_receipts_and_a_cap() -> None:
    ran: list[str] = []

    async def child(ctx: Any, input: Any) -> Any:
        ctx.log("here", who=input["who"])
        kept = await ctx.step("s", lambda: ran.append(input["who"]) or input["who"])
        return {"kept": kept, "found": await ctx.tools.execute(id="t", tool="t", input=input["who"])}

    async def calls(row: Any, ctx: Any) -> Any:
        own = await ctx.step("s", lambda: ran.append("own") or "own")
        found = [(await ctx.run_play("c", "child", {"who": who}))["found"].data for who in ("a", "b")]
        return [own, *found, (await ctx.tools.execute(id="far", tool="far", input=1)).data]

    row = Row(col("x", calls), child=child)
    row.tools.far = {"far": 1}
    assert (await row.turn()).state is RowState.WAITING
    assert data(await row.turn())["x"] == ["own", "t(a)", "t(b)", "far(1)"]
    assert ran == ["own", "a", "b"] and row.tools.made == ["t", "t", "far"]

    async def loops(row: Any, ctx: Any) -> Any:
        for n in range(9):
            await ctx.run_play("c", "child", {"who": str(n)})

    ended = await Row(col("x", loops), child=child).turn()
    assert b"more than 3 child plays" in (ended.error or b"")


async def test_a_row_starts_a_detached_run_once() -> None:
    async def child(ctx: Any, input: Any) -> Any: ...

    async def starts(row: Any, ctx: Any) -> Any:
        return (await ctx.enqueue_play("c", "child", {"name": row["name"]})).run_id

    row = Row(col("x", starts), child=child)
    first, again = data(await row.turn())["x"], data(await row.turn())["x"]
    assert first == again and list(row.started) == [first]
    assert row.started[first].input == {"name": "acme"}


# ---- provenance


async def test_provenance_is_exactly_nothing_when_off() -> None:
    keys = {name for cell in meta(await Row(col("x", WATERFALL)).turn()).values() for name in cell}
    assert not keys & {"producers", "reads", "decide", "attempts_dropped", "run_id"}


async def test_producers_reads_and_branches_when_on() -> None:
    async def many(row: Any, ctx: Any) -> Any:
        for n in range(14):
            await ctx.tools.execute(id=f"t{n}", tool="t", input=n)

    def no(row: Any) -> bool:
        return False

    made = (
        col("w", WATERFALL), col("many", many), col("_scratch", 1), col("skip", 1, run_if=no), col("two", ask("one")),
    )  # fmt: skip
    cells = meta(await Row(*made, tools=Tools(one=None, two="x"), capture=True).turn())
    assert [(one["id"], one["outcome"]) for one in cells["w"]["producers"]] == [
        ("one", "no_result"),
        ("two", "completed"),
    ]
    assert cells["w"]["steps"]["w.two"]["decide"] == {"branch": "run"}
    assert cells["w"]["steps"]["w.two"]["reads"] == ["name", "n", "one"]
    assert [one["id"] for one in cells["many"]["producers"]] == [f"t{n}" for n in range(2, 14)]
    assert cells["many"]["attempts_dropped"] == 2 and cells["many"]["run_id"] == "r"
    assert cells["skip"]["decide"] == {"branch": "else"}
    assert cells["two"]["producers"][0]["outcome"] == "cached"
    assert cells["_row"]["reads"] == {
        "columns": ["name", "n", "w", "many", "skip", "two"],
        "upto": {"_scratch": 4},
    }
