"""CSV files are taken whole, or refused with line and column before anything is called."""

import gzip
from pathlib import Path

import pytest

from runtime.context.csv_rows import CsvHandle, scan_csv
from runtime.errors import CsvError, InputChangedError
from runtime.policy.limits import Limits


def write(folder: Path, data: bytes) -> str:
    path = folder / "rows.csv"
    path.write_bytes(data)
    return str(path)


@pytest.mark.parametrize(
    ("data", "rows"),
    [
        (b"a,b\n1,2\n", [{"a": "1", "b": "2"}]),
        (b"\xef\xbb\xbfa,b\r\n1,2", [{"a": "1", "b": "2"}]),
        (b"a,b\r1,2\r3,4\r", [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]),
        (b" a , A \n1,2\n", [{"a": "1", "A": "2"}]),
        (b"a,b,c\n1\n", [{"a": "1", "b": "", "c": ""}]),
        (b'a\n"x\ny"\n"say ""hi"""\n', [{"a": "x\ny"}, {"a": 'say "hi"'}]),
        (b"\n\na,b\n\n1,2\n\n\n", [{"a": "1", "b": "2"}]),
        (b"a\n=1+1\n@x\n", [{"a": "=1+1"}, {"a": "@x"}]),
        ("a\nZürich 東京\n".encode(), [{"a": "Zürich 東京"}]),
        (b"a,b\n", []),
        (b"a\n" + b"x" * (1024 * 1024) + b"\n", [{"a": "x" * (1024 * 1024)}]),
    ],
    ids=[
        "plain",
        "bom+crlf",
        "cr",
        "blanks+twins",
        "short",
        "quoted",
        "blank lines",
        "formula",
        "utf-8",
        "header",
        "1 MiB",
    ],
)
def test_taken(tmp_path: Path, data: bytes, rows: list[dict[str, str]]) -> None:
    handle = scan_csv(write(tmp_path, data))
    assert handle.count == len(handle) == len(rows)
    assert list(handle) == rows
    assert list(handle) == rows


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "line 1, column 1: the file is empty"),
        (
            b"\xef\xbb\xbf\xef\xbb\xbfa\n1\n",
            "line 1, column 1: a byte order mark that doesn't begin the file",
        ),
        (b"\xef\xbb\xbfa\n1\n\xef\xbb\xbfa\n2\n", "line 3, column 1: a byte order mark that doesn't begin"),
        (b"\n\n", "the file is empty"),
        (b"email,email\n", 'line 1, column 2: the column name "email" appears twice'),
        (b"email, email \n", 'line 1, column 2: the column name "email" appears twice'),
        (b"a,,c\n", "line 1, column 2: the column has no name"),
        (b"a,b\n1,2\n1,2,3\n", "line 3, column 3: the row has 3 cells, the header names 2"),
        (b'a\n1\n"x\ny\n', "line 3, column 1: the record that begins here: a quote is never closed"),
        (b'a\n"x"y\n', "line 2, column 1"),
        (b"a\n1\nx\x00y\n", "line 3, column 2: a NUL byte"),
        (b"a\nZ\xfcrich\n", "line 2, column 2: byte 0xfc, which is not UTF-8"),
        ("a\n1\n".encode("utf-16"), "line 1, column 1: the file is UTF-16"),
        (b"a\n" + b"x" * (1024 * 1024 + 1), "line 2, column 1"),
        (gzip.compress(b"a\n1\n"), "line 1, column 1: the file is packed with gzip"),
        (b"a;b\n1;2\n", "line 1, column 2: the header has no comma, its names are parted by semicolons"),
        (b"\n" + b"na\tb\n1\t2\n", "line 2, column 3: the header has no comma, its names are parted by tabs"),
        (b'"a";"b"\r\n1;2\r\n', "ctx.csv(..., delimiter=';')"),
        (b"a\tb\n", "ctx.csv(..., delimiter='\\t')"),
    ],
)
def test_refused_with_line_and_column(tmp_path: Path, data: bytes, words: str) -> None:
    with pytest.raises(CsvError, match="no tool was called") as refused:
        scan_csv(write(tmp_path, data))
    assert words in str(refused.value)


def test_endless_line_is_refused_in_flat_memory(tmp_path: Path) -> None:
    with pytest.raises(CsvError, match="longer than 100 characters"):
        scan_csv(write(tmp_path, b"a\n" + b"x" * 1000), Limits(row_bytes=100))


def test_very_many_columns_cost_no_more_each(tmp_path: Path) -> None:
    names = [f"c{n}" for n in range(200_000)]
    assert len(scan_csv(write(tmp_path, ",".join(names).encode())).columns) == 200_000


def test_missing_file_is_an_error_of_the_input(tmp_path: Path) -> None:
    with pytest.raises(CsvError, match="can't be read"):
        scan_csv(str(tmp_path / "no.csv"))
    with pytest.raises(CsvError, match="can't be read"):
        scan_csv(str(tmp_path))


def test_another_file_under_the_same_name_is_refused_before_its_first_row(tmp_path: Path) -> None:
    path = write(tmp_path, b"a\n1\n")
    found = scan_csv(path).to_json()
    write(tmp_path, b"a\n2\n")
    handle = CsvHandle(
        path=found["path"], columns=tuple(found["columns"]), count=found["count"], digest=found["digest"]
    )
    with pytest.raises(InputChangedError, match=r"rows\.csv is not the file"):
        next(iter(handle))


def test_early_stop_closes_the_file(tmp_path: Path) -> None:
    rows = iter(scan_csv(write(tmp_path, b"a\n1\n2\n")))
    assert next(rows) == {"a": "1"}
    del rows


@pytest.mark.parametrize(
    ("data", "delimiter", "rows"),
    [
        (b'a;b\n"1;x";2,5\n', ";", [{"a": "1;x", "b": "2,5"}]),
        (b"a\tb\n1\t2\n", "\t", [{"a": "1", "b": "2"}]),
        (b"a;b\n1;2\n", ",", [{"a;b": "1;2"}]),
        (b'"a;b"\n1;2\n', None, [{"a;b": "1;2"}]),
        (b"a;b,c\n1;2,3\n", None, [{"a;b": "1;2", "c": "3"}]),
        ("a¦b\n1¦2\n".encode(), "¦", [{"a": "1", "b": "2"}]),
    ],
)
def test_another_delimiter(
    tmp_path: Path, data: bytes, delimiter: str | None, rows: list[dict[str, str]]
) -> None:
    handle = scan_csv(write(tmp_path, data), delimiter=delimiter)
    assert list(handle) == list(handle) == rows
