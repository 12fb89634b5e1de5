"""Cells: conditions, constants, what an earlier run left, freshness, reruns, misses and scratch columns."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from runtime.context.previous_cell import PreviousCell
from runtime.engine.cell_run import CellRules
from runtime.engine.row_run import run_row
from runtime.model.cell import CellState, StoredCells
from runtime.model.rerun import Only
from runtime.model.row import FinishedRow, InputRow, RowState
from runtime.play import Column
from tests.unit.test_row_run import Calls, Ctx, find, scope

ROW = InputRow(position=7, row_key="k", input={"name": "acme", "n": 2})
NOW = 1_000_000
EPOCH = 900_000


class NoneFound(Calls):
    async def execute(self, *args: Any, **kwargs: Any) -> tuple[Any, bool]:
        return None, self.cached


async def run(
    *columns: Column,
    stored: StoredCells | None = None,
    only: Only | None = None,
    calls: Any = None,
    row: InputRow = ROW,
) -> FinishedRow:
    rules = CellRules(epoch_ms=EPOCH, now_ms=lambda: NOW, only=only)
    return await run_row(row, columns, Ctx(), scope(calls or Calls()), stored, rules)


def data(row: FinishedRow) -> dict[str, Any]:
    return json.loads(row.data)


def meta(row: FinishedRow) -> dict[str, Any]:
    return json.loads(row.cell_meta)


def states(row: FinishedRow) -> dict[str, str]:
    return {name: cell["state"] for name, cell in meta(row).items()}


def stored(values: Mapping[str, Any], **cells: dict[str, Any]) -> StoredCells:
    known = {name: {"state": "completed", "completed_at": 800_000} for name in values}
    return StoredCells(data=values, cell_meta={**known, **cells})


class Counted:
    """A resolver that counts."""

    def __init__(self, value: Any = "new") -> None:
        self.value = value
        self.ran = 0

    def __call__(self, row: Any, ctx: Any) -> Any:
        self.ran += 1
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


# ---- conditions, constants, extras


async def test_a_column_whose_condition_says_no_is_skipped_and_seen_as_none() -> None:
    async def no(row: Any, ctx: Any) -> bool:
        return row["n"] > 2

    counted = Counted()
    row = await run(
        Column("a", counted, run_if=no),
        Column("b", counted, run_if=lambda row, *, index: index == 7),
        Column("c", counted, run_if=lambda row: False, otherwise={"why": "no"}),
        Column("d", lambda row, ctx: [row["a"], row["c"]]),
    )
    assert states(row) == {"a": "skipped", "b": "completed", "c": "skipped", "d": "completed"}
    assert data(row)["d"] == [None, {"why": "no"}]
    assert counted.ran == 1


async def test_a_condition_that_raises_fails_its_cell() -> None:
    row = await run(Column("a", 1, run_if=lambda row: row["nowhere"]), Column("b", 2))
    assert states(row) == {"a": "failed", "b": "not_run"}


async def test_a_constant_is_each_row_s_own() -> None:
    column = Column("tags", ["x"])
    spoil = Column("b", lambda row, ctx: row["tags"].append("y"))
    for _ in range(2):
        assert data(await run(column, spoil))["tags"] == ["x", "y"]


async def test_a_resolver_is_told_its_index_and_the_previous_cell_if_it_wants_them() -> None:
    told: list[Any] = []

    def resolver(row: Any, ctx: Any, *, index: int, previous_cell: PreviousCell | None) -> Any:
        told.append((index, previous_cell))
        return "new"

    before = stored(
        {"a": "old"}, a={"state": "cached", "completed_at": 5, "stale_at": 9, "stale_after_seconds": 4}
    )
    await run(Column("a", resolver), stored=before)
    await run(Column("a", resolver))
    await run(Column("a", resolver), stored=stored({"a": None}, a={"state": "skipped"}))
    failed = {"state": "failed", "completed_at": 5, "error": {"message": "m"}}
    await run(Column("a", resolver), stored=stored({"a": None}, a=failed))
    assert told == [
        (
            7,
            PreviousCell(
                value="old", state=CellState.CACHED, completed_at=5, stale_at=9, stale_after_seconds=4
            ),
        ),
        (7, None),
        (7, None),
        (7, PreviousCell(value=None, state=CellState.FAILED, completed_at=5, error={"message": "m"})),
    ]


# ---- what a cell's meta says


async def test_times_and_the_producer_are_kept() -> None:
    row = await run(Column("a", find, stale_after_seconds=60), Column("b", 1 and (lambda row, ctx: 1)))
    assert meta(row) == {
        "a": {
            "state": "completed",
            "completed_at": NOW,
            "producer": {"kind": "tool", "id": "x", "tool": "find"},
            "stale_at": NOW + 60_000,
            "stale_after_seconds": 60,
        },
        "b": {"state": "completed", "completed_at": NOW},
    }


async def test_a_cell_made_of_receipts_says_that_it_is_reused() -> None:
    cell = meta(await run(Column("a", find), calls=Calls(cached=True)))["a"]
    assert (cell["state"], cell["reused"]) == ("cached", True)


async def test_none_from_a_call_is_a_miss_and_none_without_one_a_value() -> None:
    row = await run(Column("a", find), Column("b", lambda row, ctx: None), calls=NoneFound())
    assert states(row) == {"a": "missed", "b": "completed"}


async def test_a_scratch_column_is_seen_and_not_stored() -> None:
    row = await run(Column("_a", lambda row, ctx: 41), Column("b", lambda row, ctx: row["_a"] + 1))
    assert data(row) == {"name": "acme", "n": 2, "b": 42}
    assert states(row) == {"b": "completed"}
    assert states(await run(Column("_a", Counted(ValueError("x"))), Column("b", 1))) == {
        "_a": "failed",
        "b": "not_run",
    }


async def test_a_cell_without_a_value_never_shows_the_input_of_its_name() -> None:
    row = await run(
        Column("n", Counted(ValueError("x"))),
        Column("name", 1),
        row=InputRow(position=7, row_key="k", input={"name": "acme", "n": 2, "z": 3}),
    )
    assert data(row) == {"name": None, "n": None, "z": 3}


# ---- freshness


@pytest.mark.parametrize(
    ("stale_after", "completed_at", "runs"),
    [
        (100, 800_001, False),
        (100, 800_000, True),  # exactly as old as allowed is stale
        (0, 900_000, True),
        (100, 950_000, False),  # made after this run began
        (lambda value: 100, 800_001, False),
        (lambda value: None, 0, False),  # never stale
        (lambda value: 0 if value == "old" else 100, 890_000, True),
    ],
)
async def test_a_fresh_cell_is_taken_as_it_is(stale_after: Any, completed_at: int, runs: bool) -> None:
    counted = Counted()
    cell = {"state": "completed", "completed_at": completed_at, "producer": {"kind": "tool"}}
    column = Column("a", counted, stale_after_seconds=stale_after)
    row = await run(column, stored=stored({"a": "old"}, a=cell))
    assert counted.ran == runs
    if not runs:
        assert data(row)["a"] == "old"
        assert meta(row)["a"] == {**cell, "state": "cached", "reused": True}


async def test_without_freshness_a_column_runs_every_time_and_recompute_runs_it_although_fresh() -> None:
    for column in (Column("a", Counted()), Column("a", Counted(), stale_after_seconds=1e6, recompute=True)):
        await run(column, stored=stored({"a": "old"}))
        assert column.resolver.ran == 1


@pytest.mark.parametrize("state", ["skipped", "not_run"])
async def test_only_an_answer_is_fresh(state: str) -> None:
    counted = Counted()
    cell = {"state": state, "completed_at": 899_000}
    await run(Column("a", counted, stale_after_seconds=1e6), stored=stored({"a": None}, a=cell))
    assert counted.ran == 1


FAILED = {
    "state": "failed",
    "completed_at": 850_000,
    "error": {"code": "x", "message": "it broke", "column": "a"},
}


async def test_a_fresh_failure_stands_unless_it_is_to_be_recomputed() -> None:
    kept, again, old, by_value = Counted(), Counted(), Counted(), Counted()
    before = stored({"a": None}, a=FAILED)
    row = await run(Column("a", kept, stale_after_seconds=100), Column("b", 1), stored=before)
    assert (row.state, states(row), kept.ran) == (RowState.FAILED, {"a": "failed", "b": "not_run"}, 0)
    assert json.loads(row.error or b"")["message"] == "it broke" and meta(row)["a"]["reused"] is True
    await run(Column("a", again, stale_after_seconds=100, recompute_on_error=True), stored=before)
    await run(Column("a", old, stale_after_seconds=50), stored=before)
    await run(Column("a", by_value, stale_after_seconds=lambda value: 100), stored=before)
    assert (again.ran, old.ran, by_value.ran) == (1, 1, 1)


@pytest.mark.parametrize("said", [-1, "soon", True])
async def test_a_freshness_function_that_says_nonsense_fails_its_cell(said: Any) -> None:
    row = await run(Column("a", 1, stale_after_seconds=lambda value: said))
    assert states(row) == {"a": "failed"}
    assert "0 or more, or None" in json.loads(row.error or b"")["message"]


async def test_the_condition_comes_before_freshness() -> None:
    column = Column("a", Counted(), run_if=lambda row: False, stale_after_seconds=1e6)
    assert states(await run(column, stored=stored({"a": "old"}))) == {"a": "skipped"}


# ---- reruns


def three(*values: Any) -> tuple[Column, ...]:
    return tuple(Column(name, Counted(value)) for name, value in zip("abc", values, strict=True))


def ran(columns: tuple[Column, ...]) -> list[int]:
    return [column.resolver.ran for column in columns]


async def test_a_rerun_of_what_failed_keeps_the_rest_of_the_row() -> None:
    columns = three("A", "B", "C")
    before = stored({"a": "old", "b": None}, b=FAILED, c={"state": "not_run"})
    row = await run(*columns, stored=before, only=Only.FAILED)
    assert ran(columns) == [0, 1, 1]
    assert data(row) == {**ROW.input, "a": "old", "b": "B", "c": "C"}
    assert states(row) == {"a": "cached", "b": "completed", "c": "completed"}


async def test_a_rerun_of_what_is_missing_runs_the_columns_that_the_sheet_lacks() -> None:
    columns = three("A", "B", "C")
    await run(*columns, stored=stored({"a": "old", "c": "old"}), only=Only.MISSING)
    assert ran(columns) == [0, 1, 0]
    skipped = stored({"a": "old", "c": None}, c={"state": "skipped"})
    assert states(await run(*three(1, 2, 3), stored=skipped, only=Only.MISSING))["c"] == "skipped"


async def test_a_rerun_of_what_is_stale_runs_what_hangs_on_it_if_its_value_changed() -> None:
    stale = {"state": "completed", "completed_at": 1, "stale_at": EPOCH}
    before = stored({"a": 1, "b": 2, "c": 3}, b=stale)
    changed, same = three("A", "new", "C"), three("A", 2, "C")
    await run(*changed, stored=before, only=Only.STALE)
    await run(*same, stored=before, only=Only.STALE)
    assert (ran(changed), ran(same)) == ([0, 1, 1], [0, 1, 0])
