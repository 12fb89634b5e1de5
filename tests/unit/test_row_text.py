"""A row is stored whole, or fails by itself with the place of what can't be stored."""

import json
from typing import Any

import pytest

from runtime.engine.row_text import ended_row
from runtime.model.cell import CellState, cell_meta
from runtime.model.row import FinishedRow, InputRow, RowState


def ended(input: dict[str, Any], data: dict[str, Any], max_bytes: int = 1_000) -> FinishedRow:
    row = InputRow(position=3, row_key="k", input=input)
    meta = {name: cell_meta(CellState.COMPLETED) for name in data}
    return ended_row(row, RowState.COMPLETED, data, meta, None, max_bytes=max_bytes)


def test_a_good_row_is_its_input_and_its_cells() -> None:
    row = ended({"a": 1}, {"b": [2]})
    assert (row.state, json.loads(row.data), row.error) == (RowState.COMPLETED, {"a": 1, "b": [2]}, None)


@pytest.mark.parametrize(
    ("bad", "path"),
    [([float("nan")], "$.b[0]"), ({"x": "a\x00"}, "$.b.x"), ([{1, 2}], "$.b[0]"), ([10**5_000], "$.b[0]")],
)
def test_a_value_that_was_changed_after_it_was_checked_fails_its_row_alone(bad: Any, path: str) -> None:
    row = ended({"a": 1}, {"b": bad, "c": 3})
    assert row.state is RowState.FAILED
    assert json.loads(row.data) == {"a": 1}
    error = json.loads(row.error or b"")
    assert error["message"].startswith(f"{path}: ") and error["column"] == "b"
    meta = json.loads(row.cell_meta)
    assert (meta["b"]["state"], meta["c"]["state"]) == ("failed", "not_run")


def test_an_input_that_a_resolver_spoilt_keeps_the_rest() -> None:
    row = ended({"a": 1, "list": [float("inf")]}, {"b": 2})
    assert row.state is RowState.FAILED
    assert json.loads(row.data) == {"a": 1}
    assert json.loads(row.error or b"")["column"] is None


def test_a_row_has_a_size_and_names_what_takes_it() -> None:
    row = ended({"a": "x" * 100}, {"b": 1, "c": {"d": "y" * 950}})
    assert row.state is RowState.FAILED
    error = json.loads(row.error or b"")
    assert (
        error["message"].startswith("$.c.d: 952 of the row's 1,0") and "a row holds 1,000" in error["message"]
    )
    assert error["column"] == "c"
    assert json.loads(row.data) == {"a": "x" * 100}
