"""Rows as files, written row by row: CSV, JSON lines, Parquet."""

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, TextIO

from runtime.errors import BadInputError
from runtime.model import json_value
from runtime.policy.limits import DEFAULT_LIMITS, Limits

Row = dict[str, Any]
_FORMULA = re.compile(r"[=@\t\r]|[+-](?![\d\s().,/-]*\Z)")
"""What a spreadsheet would run; a signed number or a phone number is none."""


def write_csv(file: TextIO, rows: Iterable[Row], columns: Sequence[str], *, raw: bool = False) -> int:
    """All rows; a value that is neither text nor a number is written as JSON.

    Text that a spreadsheet would run as a formula gets an apostrophe before it, unless `raw`.
    """
    writer = csv.writer(file)
    show = _text if raw else safe_text
    writer.writerow([show(name) for name in columns])
    count = 0
    for row in rows:
        writer.writerow([show(row.get(name)) for name in columns])
        count += 1
    return count


def write_jsonl(file: TextIO, rows: Iterable[Row], columns: Sequence[str]) -> int:
    """One JSON object a line: the columns that the row has, in order, as they are."""
    count = 0
    for row in rows:
        kept = {name: row[name] for name in columns if name in row}
        file.write(json_value.dumps(kept).decode() + "\n")
        count += 1
    return count


def write_parquet(
    path: Path,
    rows: Callable[[], Iterable[Row]],
    columns: Sequence[str],
    limits: Limits = DEFAULT_LIMITS,
) -> int:
    """Columns of one kind keep it (truth, 64-bit integer, float, text); others hold JSON text. Reads the rows twice."""
    arrow, parquet = _pyarrow()
    kinds = column_kinds(rows(), columns)
    types = {
        Kind.EMPTY: arrow.string(), Kind.BOOL: arrow.bool_(), Kind.INTEGER: arrow.int64(), Kind.FLOAT: arrow.float64(),
        Kind.TEXT: arrow.string(), Kind.JSON: arrow.string(),
    }  # fmt: skip
    schema = arrow.schema([(name, types[kinds[name]]) for name in columns])
    count = 0
    with parquet.ParquetWriter(path, schema) as writer:
        for batch in _batches(rows(), kinds, limits):
            try:
                arrays = [arrow.array(batch[name], type=types[kinds[name]]) for name in columns]
            except (arrow.ArrowInvalid, arrow.ArrowTypeError, OverflowError) as error:
                raise BadInputError(
                    f"rows changed while they were exported ({error}): a newer run writes them; export again"
                ) from error
            writer.write_batch(arrow.RecordBatch.from_arrays(arrays, schema=schema))
            count += len(arrays[0]) if arrays else 0
    return count


class Kind(StrEnum):
    EMPTY = "empty"
    BOOL = "bool"
    INTEGER = "integer"
    FLOAT = "float"
    TEXT = "text"
    JSON = "json"


def column_kinds(rows: Iterable[Row], columns: Sequence[str]) -> dict[str, Kind]:
    """The narrowest kind that holds every value of a column exactly; null fits all."""
    kinds = dict.fromkeys(columns, Kind.EMPTY)
    for row in rows:
        for name in columns:
            if (value := row.get(name)) is not None:
                kinds[name] = _wider(kinds[name], _kind(value))
    return kinds


def safe_text(value: Any) -> str:
    """A cell's text with an apostrophe before what a spreadsheet would run."""
    text = _text(value)
    return f"'{text}" if isinstance(value, str) and _FORMULA.match(text) else text


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json_value.dumps(value).decode()


def _kind(value: Any) -> Kind:
    if isinstance(value, bool):
        return Kind.BOOL
    if isinstance(value, int):
        return Kind.INTEGER if -(2**63) <= value < 2**63 else Kind.JSON
    return Kind.FLOAT if isinstance(value, float) else Kind.TEXT if isinstance(value, str) else Kind.JSON


def _wider(one: Kind, other: Kind) -> Kind:
    if one is other or one is Kind.EMPTY:
        return other
    return Kind.JSON


def _stored(value: Any, kind: Kind) -> Any:
    return json_value.dumps(value).decode() if kind is Kind.JSON and value is not None else value


def _batches(rows: Iterable[Row], kinds: dict[str, Kind], limits: Limits) -> Iterator[dict[str, list[Any]]]:
    """Values by column, of so many rows or about so many bytes."""
    batch: dict[str, list[Any]] = {name: [] for name in kinds}
    count, size = 0, 0
    for row in rows:
        for name, kind in kinds.items():
            value = _stored(row.get(name), kind)
            batch[name].append(value)
            size += len(value) if isinstance(value, str) else 8
        count += 1
        if count >= limits.export_batch_rows or size >= limits.export_batch_bytes:
            yield batch
            batch, count, size = {name: [] for name in kinds}, 0, 0
    if count:
        yield batch


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise BadInputError(
            "Parquet needs the package pyarrow, which is not installed here: pip install 'playlane[parquet]', "
            "or export --to csv or --to jsonl"
        ) from error
    return pyarrow, pyarrow.parquet
