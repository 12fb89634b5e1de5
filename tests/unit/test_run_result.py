"""Whatever a body returns is one object: rows, values and datasets in known places, within its size."""

from pathlib import Path
from typing import Any

import pytest

from runtime.context.dataset_handle import DatasetHandle
from runtime.context.returned import normalised
from runtime.context.tool_result import tool_result
from runtime.engine.run_result import handles_in, preview, result_json
from runtime.errors import JsonValueError
from runtime.model import json_value
from runtime.model.run_result import row_count
from runtime.policy.limits import DEFAULT_LIMITS, Limits
from tests.unit.body_world import World, run_to_end

HANDLE = DatasetHandle(
    dataset="a",
    namespace="a",
    columns=("x",),
    rows=5,
    completed=4,
    failed=1,
    counts={"dataset_id": 3, "superseded": 1},
)


@pytest.mark.parametrize(
    ("given", "stored", "rows"),
    [
        (None, {}, 0),
        (3, {"value": 3}, 1),
        (False, {"value": False}, 1),
        ("x", {"value": "x"}, 1),
        ([], {"rows": []}, 0),
        ([1, 2], {"rows": [1, 2]}, 2),
        (({"a": 1},), {"rows": [{"a": 1}]}, 1),
        ({"a": 1}, {"a": 1}, 1),
        ({"leads": [1, 2, 3]}, {"leads": [1, 2, 3]}, 3),
        ({"contacts": [1], "rows": [1, 2]}, {"contacts": [1], "rows": [1, 2]}, 1),
        ({"results": [1, 2]}, {"results": [1, 2]}, 2),
        ({"_metadata": {"n": 1}}, {"metadata": {"n": 1}}, 1),
        (tool_result(b'{"a":1}', tool="t"), {"a": 1}, 1),
        (tool_result(b"[1,2]", tool="t"), {"rows": [1, 2]}, 2),
        (tool_result(b"7", tool="t"), {"value": 7}, 1),
        ({"found": tool_result(b"[1]", tool="t")}, {"found": [1]}, 1),
    ],
)
def test_normalised(given: Any, stored: Any, rows: int) -> None:
    kept = json_value.loads(result_json(normalised(given), DEFAULT_LIMITS))
    assert kept == stored
    assert row_count(kept) == rows


@pytest.mark.parametrize("place", ["rows", "results", "leads", "contacts"])
def test_a_dataset_is_named_with_its_first_rows(place: str) -> None:
    given = normalised(HANDLE) if place == "rows" else {place: HANDLE, "rows_listed": [1, 2]}
    assert handles_in(given, DEFAULT_LIMITS) == [HANDLE]
    kept = json_value.loads(result_json(given, DEFAULT_LIMITS, {3: [{"x": 1}]}))
    assert kept[place] == {
        "kind": "dataset", "dataset": "a", "namespace": "a", "columns": ["x"], "rows": 5, "completed": 4, "failed": 1,
        "dataset_id": 3, "superseded": 1, "count": 3, "preview": [{"x": 1}],
    }  # fmt: skip
    assert row_count(kept) == 3


def test_a_preview_holds_so_many_rows_and_bytes() -> None:
    limits = Limits(preview_rows=2, preview_bytes=30)
    assert preview(['{"a":1}'] * 5, limits) == [{"a": 1}] * 2
    assert preview(['{"a":"' + "x" * 20 + '"}'] * 2, limits) == [{"a": "x" * 20}]


def test_too_large_a_result_names_what_makes_it_so() -> None:
    with pytest.raises(JsonValueError, match="at most 100 bytes: return the dataset's handle") as refused:
        result_json({"a": 1, "found": [{"text": "x" * 200}]}, Limits(result_bytes=100))
    assert refused.value.path == "$.found[0].text"


def test_a_returned_csv_becomes_a_sheet(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("icao,name\nEDDF,Frankfurt\nKJFK,New York\n")

    async def it(ctx: Any, input: Any) -> Any:
        csv = await ctx.csv()
        return {"rows": csv, "again": csv, "named": await ctx.csv(columns=["name"])}

    world = run_to_end(it, World(input={"file": str(path)}), crash_at=("body.after_journal", 2))
    result = json_value.loads(world.result or b"")
    assert result["rows"] == result["again"]
    assert result["rows"]["rows"] == result["named"]["rows"] == 2
    assert result["rows"]["namespace"].startswith("csv_")
    assert len({result["rows"]["namespace"], result["named"]["namespace"]}) == 2
    assert [json_value.loads(row.input) for row in world.pages[0].rows] == [
        {"icao": "EDDF", "name": "Frankfurt"},
        {"icao": "KJFK", "name": "New York"},
    ]
    keys = [[row.row_key for row in page.rows] for page in world.pages]
    assert keys[0] == keys[1]  # what a play sees of a row doesn't change which row it is


@pytest.mark.parametrize("how", ["awaited", "returned", "in a cell"])
def test_a_dataset_that_was_never_run_says_what_to_write(how: str) -> None:
    async def it(ctx: Any, input: Any) -> Any:
        table = ctx.dataset("t", [{"a": 1}]).with_column("x", lambda row, ctx: 1)
        return await table if how == "awaited" else {"table": table} if how == "returned" else [[table]]

    world = run_to_end(it)
    assert world.error is not None
    assert ".run(key=...)" in world.error["message"]


def test_a_body_with_random_values_is_told_where_to_take_them() -> None:
    seen: list[int] = []

    async def it(ctx: Any, input: Any) -> Any:
        seen.append(1)
        await ctx.tools.execute(id="x", tool="t", input=len(seen))

    world = run_to_end(it, crash_at=("body.after_journal", 1))
    assert world.error is not None
    assert "Take random values and clocks in ctx.step" in world.error["message"]
    assert "tool:x:0" in world.error["message"]


def test_a_key_column_that_is_missing_is_named() -> None:
    async def it(ctx: Any, input: Any) -> Any:
        await ctx.dataset("t", [{"a": 1}]).with_column("x", lambda row, ctx: 1).run(key=["a", "email"])

    world = run_to_end(it)
    assert world.error is not None
    assert 'row 1 has no key: it has no column "email" (it has: a)' in world.error["message"]


def _deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


def _circle() -> Any:
    one: list[Any] = []
    one.extend([one, {"again": one}, HANDLE])
    return one


@pytest.mark.parametrize(
    "value", [_deep(3_000), {"a": _deep(3_000)}, _circle()], ids=["deep", "deeper", "circle"]
)
def test_a_result_without_an_end_is_refused(value: Any) -> None:
    """Its run was claimed again and again."""
    assert handles_in(value, DEFAULT_LIMITS) in ([], [HANDLE])
    with pytest.raises(JsonValueError, match="nested too deeply"):
        result_json(value, DEFAULT_LIMITS)


def test_a_deep_result_is_kept() -> None:
    assert json_value.loads(result_json(_deep(499), DEFAULT_LIMITS)) == _deep(499)
