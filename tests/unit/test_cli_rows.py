"""`playlane rows`: which dataset, what is shown, what is written."""

import csv
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from runtime.errors import BadInputError
from runtime.model.status import RowFailure, SheetRow
from tests.unit.statuses import dataset_status, run_status
from workers.cli import rows


def row(key: str, data: dict[str, Any], **cells: Any) -> SheetRow:
    return SheetRow(
        row_key=key,
        data=data,
        cell_meta=cells,
        run_id="r1",
        write_version=1,
        updated_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def test_the_only_dataset_needs_no_name_and_others_are_listed() -> None:
    one, two = dataset_status(key="one"), dataset_status(key="two")
    assert rows.choose(run_status(datasets=(one,)), None) is one
    assert rows.choose(run_status(datasets=(one, two)), "two") is two
    with pytest.raises(BadInputError, match="one, two; name one with --dataset"):
        rows.choose(run_status(datasets=(one, two)), None)
    with pytest.raises(BadInputError, match="none yet"):
        rows.choose(run_status(), "one")


def test_a_cell_without_a_value_says_its_state() -> None:
    shown = rows.table([row("k", {"a": "x" * 60}, b={"state": "not_run"})], ("a", "b"))
    console = Console(width=120, file=StringIO())
    console.print(shown)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "x" * 39 + "…" in text and "<not_run>" in text


def test_a_csv_holds_every_row_and_writes_objects_as_json(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    sheet = [row("1", {"a": "x,y", "b": {"c": 1}}), row("2", {"a": None, "b": 2.5})]
    assert rows.write_csv(path, sheet) == 2
    with path.open(newline="", encoding="utf-8") as file:
        assert list(csv.DictReader(file)) == [{"a": "x,y", "b": '{"c":1}'}, {"a": "", "b": "2.5"}]


def test_failures_name_row_column_and_reason(capsys: pytest.CaptureFixture[str]) -> None:
    error = {"column": "zone", "message": "no such place"}
    rows.tell_failures([RowFailure(position=4, row_key="EDDF", error=error)], as_json=False)
    assert capsys.readouterr().out == "row 5 (EDDF), zone: no such place\n"
    rows.tell_failures([], as_json=False)
    assert capsys.readouterr().out == "no row has failed\n"
