"""`playlane export`: every row and column, exactly, in a file that is there when it is whole."""

import csv
import json
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any, cast

import pytest

from runtime.errors import BadInputError, ServiceUnreachableError
from runtime.policy.limits import Limits
from workers.cli.datasets import DatasetTable
from workers.cli.export import To, to_file, to_stdout
from workers.cli.export_files import Kind, column_kinds, safe_text, write_csv, write_jsonl, write_parquet

ROWS: list[dict[str, Any]] = [
    {"b": "x,y", "a": {"c": 1}, "n": 1, "f": 1.5, "t": True, "mixed": 1},
    {"a": None, "b": 'say "hi"\n', "n": 2**62, "f": -0.5, "t": False, "mixed": "1", "later": "z"},
    {},
]
COLUMNS = ("b", "a", "n", "f", "t", "mixed", "later", "none")


class Table:
    columns = COLUMNS

    def __init__(self, rows: list[dict[str, Any]] | None = None, fails_after: int | None = None) -> None:
        self._rows = ROWS if rows is None else rows
        self._fails_after = fails_after

    def rows(self) -> Iterator[dict[str, Any]]:
        for number, row in enumerate(self._rows):
            if number == self._fails_after:
                raise ServiceUnreachableError("the database went away")
            yield row


def table(**how: Any) -> DatasetTable:
    return cast(DatasetTable, Table(**how))


def test_csv_has_all_columns_in_order_and_writes_objects_as_json() -> None:
    file = StringIO(newline="")
    assert write_csv(file, ROWS, COLUMNS) == 3
    file.seek(0)
    found = list(csv.DictReader(file))
    assert tuple(found[0]) == COLUMNS
    assert found[0] | {"n": "1"} == {
        "b": "x,y", "a": '{"c":1}', "n": "1", "f": "1.5", "t": "true", "mixed": "1", "later": "", "none": "",
    }  # fmt: skip
    assert (found[1]["b"], found[1]["later"], found[1]["n"]) == ('say "hi"\n', "z", str(2**62))
    assert set(found[2].values()) == {""}


@pytest.mark.parametrize(
    "text", ["=1+1", "=LINK(1)", "@SUM(A1)", "+cmd|' /C calc'!A0", "-2+3+cmd", "\t=1", "\r=1"]
)
def test_what_a_spreadsheet_would_run_is_made_text(text: str) -> None:
    assert safe_text(text) == "'" + text
    file = StringIO(newline="")
    write_csv(file, [{"b": text}], ("b",), raw=True)
    file.seek(0)
    assert list(csv.DictReader(file)) == [{"b": text}]


@pytest.mark.parametrize("value", ["+49 (30) 1234-56", "-5", "+1.5", "a=b", "", "-", -5, 1.5, ["=1"]])
def test_numbers_and_phone_numbers_stay_as_they_are(value: Any) -> None:
    assert safe_text(value) == (value if isinstance(value, str) else json.dumps(value))


def test_json_lines_keep_every_value() -> None:
    file = StringIO()
    assert write_jsonl(file, [*ROWS, {"n": 2**70}], COLUMNS) == 4
    lines = [json.loads(line) for line in file.getvalue().splitlines()]
    assert lines == [*ROWS, {"n": 2**70}]
    assert list(lines[1]) == ["b", "a", "n", "f", "t", "mixed", "later"]


def test_kinds_hold_every_value_exactly() -> None:
    kinds = column_kinds([*ROWS, {"f": 3}, {"t": None}], COLUMNS)
    assert kinds == {
        "b": Kind.TEXT, "a": Kind.JSON, "n": Kind.INTEGER, "f": Kind.JSON, "t": Kind.BOOL, "mixed": Kind.JSON,
        "later": Kind.TEXT, "none": Kind.EMPTY,
    }  # fmt: skip
    assert column_kinds([{"n": 2**63}], ("n",)) == {"n": Kind.JSON}


def test_a_file_is_there_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with pytest.raises(ServiceUnreachableError):
        to_file(table(fails_after=2), To.JSONL, path)
    assert list(tmp_path.iterdir()) == []
    assert to_file(table(), To.JSONL, path) == 3
    assert [one.name for one in tmp_path.iterdir()] == ["out.jsonl"]
    with pytest.raises(BadInputError, match="can't be written"):
        to_file(table(), To.CSV, tmp_path / "no folder" / "x.csv")


def test_stdout_gets_the_rows_alone(capsys: pytest.CaptureFixture[str]) -> None:
    to_stdout(table(), To.JSONL)
    assert len(capsys.readouterr().out.splitlines()) == 3
    with pytest.raises(BadInputError, match="--out"):
        to_stdout(table(), To.PARQUET)


def test_parquet_without_its_package_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BadInputError, match=r"pip install 'playlane\[parquet\]'"):
        to_file(table(), To.PARQUET, tmp_path / "x.parquet")
    assert list(tmp_path.iterdir()) == []


def test_parquet_comes_back_as_it_was(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "x.parquet"
    assert to_file(table(), To.PARQUET, path) == 3
    found = parquet.read_table(path).to_pylist()
    assert found[0] == {
        "b": "x,y", "a": '{"c":1}', "n": 1, "f": 1.5, "t": True, "mixed": "1", "later": None, "none": None,
    }  # fmt: skip
    assert (found[1]["n"], found[1]["mixed"], found[1]["f"]) == (2**62, '"1"', -0.5)
    assert set(found[2].values()) == {None}


def test_parquet_is_written_in_parts_of_so_many_bytes(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "x.parquet"
    rows = [{"b": str(n) * 100} for n in range(10)]
    assert write_parquet(path, lambda: rows, ["b"], Limits(export_batch_bytes=250)) == 10
    assert [row["b"] for row in parquet.read_table(path).to_pylist()] == [row["b"] for row in rows]
    assert parquet.ParquetFile(path).metadata.num_row_groups > 1


def test_rows_that_change_while_they_are_read_twice(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow.parquet")

    class Changing(Table):
        turn = 0

        def rows(self) -> Iterator[dict[str, Any]]:
            self.turn += 1
            yield {"n": 1 if self.turn == 1 else "text"}

    with pytest.raises(BadInputError, match="export again"):
        to_file(cast(DatasetTable, Changing()), To.PARQUET, tmp_path / "x.parquet")
    assert list(tmp_path.iterdir()) == []
