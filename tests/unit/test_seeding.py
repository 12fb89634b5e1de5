"""Inputs become pages once, whatever dies in between; bad rows are refused by number."""

import asyncio
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from runtime.model.run import RunState
from tests.unit.body_world import FAST, World, run_to_end

ROWS = [{"id": n, "name": f"n{n}"} for n in range(25)]
PAGED = replace(FAST, slice_rows=1, slices_per_page=4)


def value(row: Any, ctx: Any) -> Any:
    return 1


def over(rows: Any, **options: Any) -> Any:
    async def it(ctx: Any, input: Any) -> Any:
        made = rows() if callable(rows) else rows
        return await ctx.dataset("t", made).with_column("x", value).with_column("out", value).run(**options)

    return it


def seeded(world: World) -> list[Any]:
    return [orjson.loads(row.input) for page in world.pages for row in page.rows]


def error_of(world: World) -> dict[str, Any]:
    assert world.state is RunState.FAILED
    assert world.error is not None
    return world.error


def test_pages_in_order_and_advanced_while_seeding() -> None:
    world = run_to_end(over(ROWS, key="id"), limits=PAGED)
    assert seeded(world) == ROWS
    assert [page.first_position for page in world.pages] == list(range(0, 25, 4))
    assert [row.row_key for row in world.pages[0].rows] == ["0", "1", "2", "3"]
    assert len(world.advances) == len(world.pages) + 1


def test_far_ahead_of_its_rows_seeding_takes_its_time() -> None:
    """Pages that nobody needs yet are sent by whoever settles one; seeding leaves the machine to other runs."""
    world = World(pages_out=2)
    run_to_end(over(ROWS, key="id"), world, limits=replace(PAGED, seed_pages_ahead=3))
    assert seeded(world) == ROWS
    assert len(world.pages) == 7
    assert len(world.advances) == 2 + 3 + 1


@pytest.mark.parametrize("source", [ROWS, lambda: (dict(row) for row in ROWS)], ids=["list", "generator"])
def test_a_crash_after_every_page_goes_on_after_the_last_seeded_row(source: Any) -> None:
    world = run_to_end(over(source, key="id"), limits=PAGED, crash_at=("body.after_seed_page", 1))
    assert world.crashes == 7
    assert seeded(world) == ROWS
    straight = run_to_end(over(ROWS, key="id"), limits=PAGED)
    assert world.datasets == straight.datasets


def test_another_page_size_after_a_crash_changes_nothing() -> None:
    world = World()
    with pytest.raises(AssertionError, match="did not end"):
        run_to_end(
            over(ROWS, key="id"), world, limits=PAGED, crash_at=("body.after_seed_page", 1), attempts=2
        )
    run_to_end(over(ROWS, key="id"), world, limits=replace(PAGED, slices_per_page=5))
    assert seeded(world) == ROWS
    assert [len(page.rows) for page in world.pages] == [4, 4, 5, 5, 5, 2]


@pytest.mark.parametrize(
    ("second", "words"),
    [(ROWS[1:], "first 4 rows are not the ones"), (ROWS[:2], "2 rows now, 4 were seeded")],
)
def test_a_changed_input_fails_the_run(second: Any, words: str) -> None:
    tries = itertools.count()
    source = lambda: iter(ROWS if next(tries) == 0 else second)  # noqa: E731
    world = World()
    with pytest.raises(AssertionError, match="did not end"):
        run_to_end(over(source), world, limits=PAGED, crash_at=("body.after_seed_page", 1), attempts=1)
    error = error_of(run_to_end(over(source), world, limits=PAGED))
    assert error["code"] == "input_changed"
    assert words in error["message"]


def test_the_first_row_of_a_key_is_kept() -> None:
    rows = [{"k": " a "}, {"k": "b"}, {"k": "a", "other": 1}, {"k": 1}, {"k": "1"}]
    world = run_to_end(over(rows, key="k"))
    assert seeded(world) == [rows[0], rows[1], rows[3]]
    assert world.pages[0].end_position == 5


def test_equal_rows_without_a_key_are_one_row() -> None:
    world = run_to_end(over([{"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 1}]))
    assert len(seeded(world)) == 2


def test_rows_that_differ_only_in_a_column_to_be_written_stay_two() -> None:
    world = run_to_end(over([{"a": 1, "out": 1}, {"a": 1, "out": 2}]))
    assert len(seeded(world)) == 2


@pytest.mark.parametrize(
    ("row", "options", "words"),
    [
        ({"id": float("nan")}, {}, ["row 3", "$.id"]),
        ({"id": {"deep": ["a\x00"]}}, {}, ["row 3", "$.id.deep[0]"]),
        ({1: 2}, {}, ["row 3", "not text"]),
        ("text", {}, ["row 3", "a row is a dict"]),
        ({"id": None}, {"key": "id"}, ["row 3", "no key"]),
        ({"other": 1}, {"key": "id"}, ["row 3", "no key"]),
        ({"id": " "}, {"key": "id"}, ["row 3", "empty key"]),
        ({"id": True}, {"key": "id"}, ["row 3", "type bool"]),
        ({"id": 1}, {"key": lambda row: row["gone"]}, ["row 3", "key function raised KeyError"]),
        ({"id": 1, "out": 1}, {"key": "out"}, ["no key"]),
    ],
)
def test_a_bad_row_fails_the_run_before_any_page_is_out(row: Any, options: Any, words: list[str]) -> None:
    good = [{"id": 1, "gone": 1}, {"id": 2, "gone": 2}]
    error = error_of(run_to_end(over([*good, row], **options), limits=replace(PAGED, slices_per_page=1)))
    assert error["code"] == "bad_row"
    assert 'dataset "t"' in error["message"]
    for word in words:
        assert word in error["message"]


def test_no_page_is_out_when_a_listed_row_is_bad() -> None:
    world = run_to_end(over([*ROWS, {"id": None}], key="id"), limits=PAGED)
    assert error_of(world)["message"].startswith('dataset "t": row 26')
    assert world.pages == []
    assert world.boundaries["dataset:t"].cancelled


def test_rows_have_a_size() -> None:
    error = error_of(run_to_end(over([{"n": 1, "a": ["x" * 200]}]), limits=replace(FAST, row_bytes=100)))
    assert "202 of them at $.a[0]; at most 100" in error["message"]


def test_an_iterable_that_fails_names_the_row() -> None:
    def rows() -> Any:
        yield {"a": 1}
        raise ZeroDivisionError("by the author")

    assert "reading row 2" in error_of(run_to_end(over(rows)))["message"]


def test_pages_are_bounded_by_bytes() -> None:
    rows = [{"n": n, "a": "x" * 100} for n in range(10)]
    world = run_to_end(over(rows), limits=replace(FAST, page_bytes=250, slice_rows=100))
    assert [len(page.rows) for page in world.pages] == [3, 3, 3, 1]


def test_an_empty_input_settles() -> None:
    world = run_to_end(over([]))
    assert world.state is RunState.COMPLETED
    assert world.pages == []


def test_csv_to_dataset(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("icao,name\nEDDF,Frankfurt\nKJFK,New York\n")

    async def it(ctx: Any, input: Any) -> Any:
        rows = await ctx.csv(input["file"])
        await asyncio.sleep(0.3)
        table = await ctx.dataset("airports", rows).with_column("x", value).run(key="icao")
        return [rows.count, [row["name"] for row in rows], table]

    world = run_to_end(it, World(input={"file": str(path)}))
    assert world.result is not None
    assert orjson.loads(world.result)["rows"][:2] == [2, ["Frankfurt", "New York"]]
    assert [row.row_key for row in world.pages[0].rows] == ["EDDF", "KJFK"]


def test_a_csv_file_replaced_between_attempts_fails_the_run(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("a\n1\n")

    async def it(ctx: Any, input: Any) -> Any:
        rows = await ctx.csv(str(path))
        await asyncio.sleep(0.3)
        path.write_text("a\n2\n")
        await ctx.dataset("t", rows).with_column("x", value).run()

    world = run_to_end(it)
    assert error_of(world)["code"] == "input_changed"
    assert world.pages == []


def test_a_refused_csv_can_be_caught(tmp_path: Path) -> None:
    async def it(ctx: Any, input: Any) -> Any:
        try:
            await ctx.csv(str(tmp_path / "no.csv"))
        except Exception as error:
            await asyncio.sleep(0.3)
            return type(error).__name__

    world = run_to_end(it)
    assert world.result == b'{"value":"CsvError"}'
    assert world.attempt > 1


def test_many_operations() -> None:
    async def it(ctx: Any, input: Any) -> Any:
        for n in range(500):
            await ctx.tools.execute(id="x", tool="t", input=n)
        await asyncio.sleep(1)

    world = run_to_end(it)
    assert world.attempt > 1
    assert len(world.tool_calls) == 500
