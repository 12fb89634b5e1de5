"""One row: columns in order, failures that stay in the row, and those that never do."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from runtime.engine.row_run import died_row, run_row
from runtime.engine.row_scope import RowScope
from runtime.engine.stop_sign import StopSign
from runtime.engine.tool_calls import CallContext, CallPlace
from runtime.errors import RowWaitsError, RunHaltedError, SliceLostError, ToolRejectedError
from runtime.model.row import FinishedRow, InputRow, RowState
from runtime.model.row_wait import RowWait, WaitKind
from runtime.play import Column
from runtime.policy.limits import Limits
from tests.waiting import wait_until_async

ROW = InputRow(position=7, row_key="k", input={"name": "acme", "n": 2})


class Calls:
    """Answers every call from a table; `cached` says whether receipts did."""

    def __init__(self, cached: bool = False, error: Exception | None = None) -> None:
        self.cached = cached
        self.error = error

    async def execute(
        self, context: CallContext, tool: str, input: Any, options: Any = None, place: Any = None
    ) -> tuple[Any, bool]:
        if self.error:
            raise self.error
        return f"{tool}:{input}", self.cached


def scope(calls: Any) -> RowScope:
    context = CallContext(org_id="o", run_id="r")
    return RowScope(calls=calls, context=context, position=7, limits=Limits(), logs=[])


class Ctx:
    """The author's ctx, as far as a resolver here needs it."""

    class tools:
        @staticmethod
        async def execute(*, id: str, tool: str, input: Any) -> Any:
            from runtime.context.scope import current_scope

            here = current_scope.get()
            assert here is not None
            return await here.tool(id=id, tool=tool, input=input)


async def run(*columns: tuple[str, Any], calls: Any = None) -> FinishedRow:
    return await run_row(ROW, [Column(*column) for column in columns], Ctx(), scope(calls or Calls()))


def data(row: FinishedRow) -> Any:
    return json.loads(row.data)


def states(row: FinishedRow) -> dict[str, str]:
    return {name: cell["state"] for name, cell in json.loads(row.cell_meta).items()}


async def find(row: Any, ctx: Any) -> Any:
    return await ctx.tools.execute(id="x", tool="find", input=row["name"])


async def test_columns_see_the_earlier_ones() -> None:
    row = await run(
        ("found", find), ("twice", lambda row, ctx: row["n"] * 2), ("sum", lambda row, ctx: row["twice"] + 1)
    )
    assert row.state is RowState.COMPLETED
    assert data(row) == {"name": "acme", "n": 2, "found": "find:acme", "twice": 4, "sum": 5}


async def test_a_failure_keeps_what_was_done_and_marks_the_rest_not_run() -> None:
    """B05: the row holds its error, its later column is not run."""
    row = await run(("a", lambda row, ctx: 1), ("b", lambda row, ctx: 1 / 0), ("c", lambda row, ctx: 3))
    assert row.state is RowState.FAILED
    assert states(row) == {"a": "completed", "b": "failed", "c": "not_run"}
    assert row.error is not None
    error = json.loads(row.error)
    assert (error["column"], error["message"]) == ("b", "ZeroDivisionError: division by zero")


async def test_a_cell_made_of_receipts_alone_is_cached() -> None:
    assert states(await run(("a", find), calls=Calls(cached=True))) == {"a": "cached"}
    assert states(await run(("a", find), calls=Calls(cached=False))) == {"a": "completed"}


async def test_a_tool_error_is_stored_with_its_code() -> None:
    row = await run(
        ("a", find), calls=Calls(error=ToolRejectedError("no such thing", tool="find", code="bad_item"))
    )
    assert json.loads(row.error or b"")["code"] == "bad_item"


@pytest.mark.parametrize("fatal", [RunHaltedError("no credits"), SliceLostError("newer holder")])
async def test_some_errors_are_never_isolated(fatal: Exception) -> None:
    with pytest.raises(type(fatal)):
        await run(("a", find), calls=Calls(error=fatal))


@pytest.mark.parametrize(
    ("value", "path"), [(float("nan"), "$.a"), ({"x": b"b"}, "$.a.x"), ("y" * (1024 * 1024 + 1), "$.a")]
)
async def test_a_value_that_cannot_be_stored_fails_its_cell(value: Any, path: str) -> None:
    row = await run(("a", lambda row, ctx: value))
    assert row.state is RowState.FAILED
    assert json.loads(row.error or b"")["message"].startswith(f"{path}:")


async def test_a_resolver_cannot_change_its_row() -> None:
    def spoil(row: Any, ctx: Any) -> None:
        row["name"] = "x"

    row = await run(("a", spoil))
    assert row.state is RowState.FAILED
    assert data(row) == {"name": "acme", "n": 2}


async def test_an_error_text_that_postgres_refuses_is_made_storable() -> None:
    def hostile(row: Any, ctx: Any) -> None:
        raise ValueError("nul \x00 and half \ud800")

    row = await run(("a", hostile))
    assert b"\\u0000" not in (row.error or b"")
    assert json.loads(row.error or b"")["message"] == "ValueError: nul \\0 and half \\ud800"


async def test_a_fatal_error_is_not_swallowed_by_a_resolver() -> None:
    async def swallows(row: Any, ctx: Any) -> Any:
        try:
            return await ctx.tools.execute(id="a", tool="t", input={})
        except Exception:
            return "all is well"

    async def wraps(row: Any, ctx: Any) -> Any:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.tools.execute(id="a", tool="t", input={}))

    for resolver in (swallows, wraps):
        with pytest.raises(RunHaltedError, match="credits"):
            await run(("c", resolver), calls=Calls(error=RunHaltedError("credits are used up")))


class SlowCalls(Calls):
    """Answers when told; keeps what was asked and from where."""

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()
        self.places: list[CallPlace] = []

    async def execute(
        self, context: CallContext, tool: str, input: Any, options: Any = None, place: Any = None
    ) -> tuple[Any, bool]:
        self.places.append(place)
        await self.open.wait()
        return input, False


async def ask_in_row(*asked: tuple[str, Any], together: bool) -> tuple[FinishedRow, SlowCalls]:
    calls = SlowCalls()

    async def resolver(row: Any, ctx: Any) -> Any:
        async def one(id: str, input: Any) -> Any:
            return await ctx.tools.execute(id=id, tool="t", input=input)

        if not together:
            return [await one(*each) for each in asked]
        return await asyncio.gather(*(one(*each) for each in asked))

    asyncio.get_running_loop().call_later(0.01, calls.open.set)
    return await run(("c", resolver), calls=calls), calls


async def test_the_same_question_twice_at_once_in_one_row_is_an_error_with_a_hint() -> None:
    row, _ = await ask_in_row(("x", {"a": 1, "b": 2}), ("x", {"b": 2, "a": 1}), together=True)
    error = json.loads(row.error or b"")
    assert (error["code"], "another id" in error["message"]) == ("play_definition", True)


@pytest.mark.parametrize(
    ("asked", "together"),
    [
        ((("x", {"a": 1}), ("y", {"a": 1})), True),
        ((("x", {"a": 1}), ("x", {"a": 2})), True),
        ((("x", {"a": 1}), ("x", {"a": True})), True),
        ((("x", {"a": 1}), ("x", {"a": 1})), False),
    ],
)
async def test_other_names_other_inputs_and_one_after_the_other_are_fine(
    asked: tuple[tuple[str, Any], ...], together: bool
) -> None:
    row, _ = await ask_in_row(*asked, together=together)
    assert row.state is RowState.COMPLETED


async def test_equal_calls_of_a_place_are_numbered_and_columns_are_places_of_their_own() -> None:
    _, calls = await ask_in_row(("x", 1), ("x", 1), ("y", 1), together=False)
    first, second, other = calls.places
    assert first.parts == second.parts == ("row", "", 7, "c", "x") and other.parts[-1] == "y"
    assert [first.nth("t:1"), second.nth("t:1"), other.nth("t:1"), first.nth("t:2")] == [0, 1, 0, 0]


FAR = RowWait(kind=WaitKind.LANE, due_ms=60_000.0, detail="t on lane p")


class FarCalls(Calls):
    """The turn of every call is far away; counts what was asked."""

    asked = 0

    async def execute(
        self, context: CallContext, tool: str, input: Any, options: Any = None, place: Any = None
    ) -> tuple[Any, bool]:
        self.asked += 1
        raise RowWaitsError(FAR)


async def plainly(row: Any, ctx: Any) -> Any:
    return await ctx.tools.execute(id="a", tool="t", input={})


async def swallowing(row: Any, ctx: Any) -> Any:
    try:
        return await ctx.tools.execute(id="a", tool="t", input={})
    except BaseException:
        return "all is well"


async def asking_on(row: Any, ctx: Any) -> Any:
    for n in range(5):
        try:
            return await ctx.tools.execute(id=f"a{n}", tool="t", input={})
        except BaseException:
            continue
    return "nothing"


async def grouped(row: Any, ctx: Any) -> Any:
    async with asyncio.TaskGroup() as group:
        group.create_task(ctx.tools.execute(id="a", tool="t", input={}))


async def in_time(row: Any, ctx: Any) -> Any:
    async with asyncio.timeout(5):
        return await asyncio.wait_for(ctx.tools.execute(id="a", tool="t", input={}), 5)


async def failing_after(row: Any, ctx: Any) -> Any:
    try:
        return await ctx.tools.execute(id="a", tool="t", input={})
    finally:
        raise ValueError("cleaning up went wrong")


@pytest.mark.parametrize("resolver", [plainly, swallowing, asking_on, grouped, in_time, failing_after])
async def test_a_row_whose_call_must_wait_waits_whatever_its_resolver_makes_of_it(resolver: Any) -> None:
    calls = FarCalls()
    row = await run(("before", lambda row, ctx: 1), ("c", resolver), ("after", plainly), calls=calls)
    assert (row.state, row.wait, row.data, row.error) == (RowState.WAITING, FAR, b"", None)
    assert calls.asked == 1


async def test_a_cancelled_row_is_cancelled_even_if_it_waits() -> None:
    async def stuck(row: Any, ctx: Any) -> Any:
        try:
            await ctx.tools.execute(id="a", tool="t", input={})
        except BaseException:
            await asyncio.Event().wait()

    calls = FarCalls()
    task = asyncio.get_running_loop().create_task(run(("c", stuck), calls=calls))
    await wait_until_async(lambda: calls.asked == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_row_keeps_so_many_lines() -> None:
    """An author's endless loop of ctx.log fills no memory."""
    one = scope(Calls())
    for _ in range(Limits().logs_per_scope + 5):
        one.log("again", {})
    assert len(one.logs) == Limits().logs_per_scope


class Unusual(BaseException):
    """What some test and async libraries raise."""


async def cancelled_task(row: Any, ctx: Any) -> Any:
    task = asyncio.ensure_future(asyncio.Event().wait())
    task.cancel()
    await task


async def cancels_itself(row: Any, ctx: Any) -> Any:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def unusual(row: Any, ctx: Any) -> Any:
    raise Unusual("odd")


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


async def wordless(row: Any, ctx: Any) -> Any:
    raise Wordless


async def in_a_thread(row: Any, ctx: Any) -> Any:
    """The thread's own loop never hears of the answer: the row hung, and its slice with it."""
    asking = ctx.tools.execute(id="a", tool="t", input={})
    return await asyncio.to_thread(asyncio.run, asking)


@pytest.mark.parametrize(
    ("resolver", "words"),
    [
        (wordless, "Wordless: (its __str__ raised RuntimeError)"),
        (in_a_thread, 'column "b": ctx was used in a thread'),
        (cancelled_task, "what it awaited was cancelled"),
        (cancels_itself, "cancelled"),
        (unusual, "Unusual: odd"),
    ],
)
async def test_a_resolver_that_cancels_or_raises_anything_fails_its_row_alone(
    resolver: Any, words: str
) -> None:
    """The slice was given back and run again without an end."""
    columns = [Column("a", lambda row, ctx: 1), Column("b", resolver), Column("c", lambda row, ctx: 3)]
    row = await run_row(ROW, columns, Ctx(), scope(Calls()), leaving=StopSign())
    assert (row.state, states(row)) == (RowState.FAILED, {"a": "completed", "b": "failed", "c": "not_run"})
    assert words in json.loads(row.error or b"")["message"]
    task = asyncio.current_task()
    assert task is not None and not task.cancelling(), "the next row may run in this task"


@pytest.mark.parametrize("raised", [asyncio.CancelledError, ConnectionError])
async def test_a_row_whose_slice_stops_has_not_failed(raised: type[BaseException]) -> None:
    """Whatever its resolver makes of the cancellation."""
    leaving, begun = StopSign(), asyncio.Event()

    async def slow(row: Any, ctx: Any) -> Any:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise raised from None

    run = run_row(ROW, [Column("a", slow)], Ctx(), scope(Calls()), leaving=leaving)
    task = asyncio.get_running_loop().create_task(run)
    await begun.wait()
    leaving.is_up = True
    task.cancel()
    with pytest.raises(raised):
        await task


def test_a_row_that_kills_its_workers_fails_with_its_reason() -> None:
    row = died_row(replace(ROW, crashes=4))
    assert row.state is RowState.FAILED
    assert data(row) == ROW.input
    error = json.loads(row.error or b"")
    assert (error["code"], error["type"]) == ("worker_died", "WorkerDiedError")
    assert error["message"].startswith("4 worker processes died")
