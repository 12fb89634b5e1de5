"""A dataset's handle: read lazily, journaled in a body, plainly elsewhere."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from runtime.context.dataset_handle import DatasetHandle, current_reader
from runtime.engine.handle_reads import HandleReads
from runtime.errors import DatasetReadError, PlayDefinitionError
from runtime.model import json_value
from runtime.model.row import RowState
from runtime.model.run import RunState
from runtime.model.stored_row import StoredRow, Stretch
from runtime.policy.reading import next_rows
from tests.unit.body_world import FAST, RUN, World, bridge, dataset_facts, recovery, run_to_end, runner

LIMITS = replace(FAST, handle_page_rows=3, materialize_rows=8, read_bytes=1_000)


@dataclass
class Sheets:
    """SheetReads over a list."""

    texts: list[str] = field(default_factory=lambda: [f"r{n}" for n in range(7)])
    asked: list[Stretch] = field(default_factory=list)

    async def rows(self, stretch: Stretch) -> list[StoredRow] | None:
        self.asked.append(stretch)
        if stretch.dataset_id != 7:
            return None
        found = [
            StoredRow(
                position=at,
                row_key=text,
                state=RowState.COMPLETED,
                data=json_value.dumps({"name": text}).decode(),
                cell_meta="{}",
            )
            for at, text in enumerate(self.texts)
            if at > stretch.after
        ]
        if stretch.from_end:
            found.reverse()
        return found[stretch.skip : stretch.skip + stretch.limit]


def handle_of(count: int = 7, dataset_id: int | None = 7) -> DatasetHandle:
    counts = {} if dataset_id is None else {"dataset_id": dataset_id}
    return DatasetHandle(
        dataset="a", namespace="a", columns=("x",), rows=count, completed=count, failed=0, counts=counts
    )


def names(rows: Sequence[dict[str, Any]]) -> list[str]:
    return [row["name"] for row in rows]


@pytest.fixture
def sheets() -> Sheets:
    made = Sheets()
    current_reader.set(HandleReads(made, LIMITS))
    return made


async def test_every_way_to_read(sheets: Sheets) -> None:
    handle = handle_of()
    assert handle.count == 7
    assert names(await handle.peek()) == sheets.texts
    assert names(await handle.peek(2)) == ["r0", "r1"]
    assert await handle.peek(0) == []
    assert names(await handle.materialize()) == sheets.texts
    assert names(await handle.materialize(limit=4)) == ["r0", "r1", "r2", "r3"]
    assert (await handle.at(0))["name"] == "r0"
    assert (await handle.at(-1))["name"] == "r6"
    assert (await handle.at(-7))["name"] == "r0"
    assert names([row async for row in handle]) == sheets.texts
    assert max(stretch.limit for stretch in sheets.asked) <= LIMITS.handle_page_rows


async def test_walking_reads_a_page_at_a_time_and_no_more_than_is_walked(sheets: Sheets) -> None:
    async for row in handle_of():
        if row["name"] == "r3":
            break
    assert [stretch.after for stretch in sheets.asked] == [-1, 2]


async def test_the_last_row_is_the_last_that_is_left(sheets: Sheets) -> None:
    """A newer run has written some rows since: the count of the settled dataset leads nowhere."""
    assert (await handle_of(9).at(-1))["name"] == "r6"


@pytest.mark.parametrize("index", [7, -8, 100])
async def test_no_row_there(sheets: Sheets, index: int) -> None:
    with pytest.raises(IndexError, match="has 7 rows"):
        await handle_of().at(index)


async def test_what_is_too_much_is_refused_with_what_to_do(sheets: Sheets) -> None:
    with pytest.raises(DatasetReadError, match=r"9 rows, more than 8.*async for"):
        await handle_of(9).materialize()
    with pytest.raises(DatasetReadError, match="more than 8"):
        await handle_of(9).materialize(limit=9)
    sheets.texts = ["x" * 400] * 7
    with pytest.raises(DatasetReadError, match="more than 1,000 bytes"):
        await handle_of().materialize()


async def test_a_dataset_that_is_gone_and_a_handle_of_none(sheets: Sheets) -> None:
    with pytest.raises(DatasetReadError, match="not stored any more"):
        await handle_of(dataset_id=8).peek()
    with pytest.raises(DatasetReadError, match="names no stored dataset"):
        await handle_of(dataset_id=None).peek()


async def test_outside_a_play_there_is_nothing_to_read_by() -> None:
    current_reader.set(None)
    with pytest.raises(PlayDefinitionError, match="outside a play"):
        await handle_of().peek()


@pytest.mark.parametrize("bad", [-1, 1.5, True, "3"])
async def test_a_number_of_rows_is_a_whole_number(sheets: Sheets, bad: Any) -> None:
    with pytest.raises(PlayDefinitionError, match="whole number"):
        await handle_of().peek(bad)


def test_it_comes_back_from_its_json() -> None:
    handle = handle_of()
    assert DatasetHandle.of_json(handle.to_json()) == handle


# ---- in a body

OUTCOME = {"ok": {"rows": 7, "completed": 7, "failed": 0, "dataset_id": 7}}


def world_of(sheets: Sheets) -> World:
    return World(dataset_outcomes={"a": OUTCOME, "b": OUTCOME}, reads=HandleReads(sheets, LIMITS))


async def reads(ctx: Any, input: Any) -> Any:
    a = await ctx.dataset("a", [{"n": 1}]).with_column("x", lambda row, ctx: 1).run()
    first = await a.peek(2)
    walked = [row["name"] async for row in a]
    await asyncio.sleep(5)
    return {
        "first": names(first),
        "walked": walked,
        "last": (await a.at(-1))["name"],
        "all": len(await a.materialize()),
    }


@pytest.mark.parametrize("crash", range(1, 12))
def test_a_replayed_body_meets_the_same_rows(crash: int) -> None:
    sheets = Sheets()
    world = run_to_end(reads, world_of(sheets), limits=LIMITS, crash_at=("body.after_journal", crash))
    assert json_value.loads(world.result or b"") == {
        "first": ["r0", "r1"],
        "walked": sheets.texts,
        "last": "r6",
        "all": 7,
    }
    kinds = [entry.kind for entry in world.entries]
    assert kinds.count("read") == 1 + 4 + 1 + 3
    kept = ["rows" in entry.outcome["ok"] for entry in world.entries if entry.kind == "read"]
    assert kept == [True, False, False, False, False, True, False, False, False]


def test_a_returned_dataset_of_a_run_that_is_gone_is_named_without_rows() -> None:
    async def it(ctx: Any, input: Any) -> Any:
        return {"old": handle_of(dataset_id=8), "new": handle_of()}

    world = world_of(Sheets())
    with bridge() as on:
        runner(world, it, on, limits=LIMITS).drive(RUN)
    assert world.state is RunState.COMPLETED, world.error
    result = json_value.loads(world.result or b"")
    assert "preview" not in result["old"] and len(result["new"]["preview"]) == 7


def test_few_rows_are_kept_and_many_fail_by_name_when_a_newer_run_has_written_them() -> None:
    async def walks(ctx: Any, input: Any) -> Any:
        a = await ctx.dataset("a", [{"n": 1}]).with_column("x", lambda row, ctx: 1).run()
        first = (await a.peek(1))[0]["name"]
        if input == "walk":
            async for _ in a:
                break
        await asyncio.sleep(5)
        return first

    for how, state in (("peek", RunState.COMPLETED), ("walk", RunState.FAILED)):
        sheets = Sheets()
        world = world_of(sheets)
        world.input = how
        with bridge() as on:
            runner(world, walks, on, limits=LIMITS).drive(RUN)
            assert world.state is RunState.WAITING
            world.sleep_until_due()
            sheets.texts = ["other", *sheets.texts[1:]]
            runner(world, walks, on, limits=LIMITS).drive(RUN)
        assert world.state is state, world.error
        if state is RunState.FAILED:
            assert world.error is not None
            assert world.error["code"] == "input_changed" and 'dataset "a"' in world.error["message"]
        else:
            assert b"r0" in (world.result or b"")


def test_columns_are_recovered_over_reads() -> None:
    async def closes(ctx: Any, input: Any) -> Any:
        a = await ctx.dataset("a", [{"n": 1}]).with_column("x", lambda row, ctx: 1).run()
        found = [row["name"] async for row in a]
        await ctx.dataset("b", [{"n": 1}]).with_column("y", lambda row, ctx: found).run()

    world = world_of(Sheets())
    world.dataset_s = {"b": 1_000.0}
    with bridge() as on:
        runner(world, closes, on, limits=LIMITS).drive(RUN)
        recovered = recovery(world, closes, on, LIMITS).columns(dataset_facts(world, "b"))
        assert recovered.columns[0].resolver({}, None) == [f"r{n}" for n in range(7)]


def test_a_handle_is_the_input_of_another_dataset() -> None:
    async def chains(ctx: Any, input: Any) -> Any:
        a = await ctx.dataset("a", [{"n": 1}]).with_column("x", lambda row, ctx: 1).run()
        b = await ctx.dataset("b", a).with_column("y", lambda row, ctx: 1).run(key="name")
        return b.rows

    sheets = Sheets()
    world = run_to_end(chains, world_of(sheets), limits=LIMITS, crash_at=("body.after_seed_page", 2))
    seeded = [row.row_key for page in world.pages for row in page.rows]
    assert seeded == ["1", *sheets.texts] or seeded[1:] == sheets.texts
    assert max(stretch.limit for stretch in sheets.asked) == LIMITS.handle_page_rows


@pytest.mark.parametrize(
    ("read", "size", "expected"),
    [(0, 0, 8), (8, 80, 64), (8, 8_000, 2), (8, 10_000, 0), (100, 1, 0), (90, 90, 10)],
)
def test_how_much_is_read_next(read: int, size: int, expected: int) -> None:
    assert next_rows(rows_read=read, bytes_read=size, limit=100, max_bytes=10_000) == expected
