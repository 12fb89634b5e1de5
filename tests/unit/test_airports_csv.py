import csv
from pathlib import Path

import pytest

from examples.airports_csv import COLUMNS, write_airports


@pytest.mark.parametrize("rows", [1, 7, 28_000])
def test_rows_are_distinct_and_complete(tmp_path: Path, rows: int) -> None:
    path = tmp_path / "data" / "airports.csv"
    assert write_airports(path, rows) == rows
    with path.open(newline="", encoding="utf-8") as file:
        read = list(csv.DictReader(file))
    assert len({row["icao"] for row in read}) == rows
    assert tuple(read[0]) == COLUMNS
    assert all(row["country"] and row["tz"] and float(row["lat"]) <= 90 for row in read)


def test_more_than_there_are_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="airports are known"):
        write_airports(tmp_path / "a.csv", 1_000_000)
