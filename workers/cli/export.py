"""`playlane export RUN DATASET`: all rows of a dataset as a file, of any size."""

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from runtime.errors import BadInputError
from workers.cli.connection import connect
from workers.cli.datasets import DatasetTable, choose
from workers.cli.export_files import write_csv, write_jsonl, write_parquet
from workers.cli.options import AsJson, RunId
from workers.cli.terminal import say, say_json

STDOUT = Path("-")


class To(StrEnum):
    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"


def export(
    run_id: RunId,
    dataset: Annotated[
        str | None, typer.Argument(metavar="DATASET", help="Which dataset, if the run has several.")
    ] = None,
    to: Annotated[To, typer.Option(help="Kind of file.")] = To.CSV,
    out: Annotated[Path | None, typer.Option(help="File to write; - is stdout.")] = None,
    completed: Annotated[bool, typer.Option("--completed", help="Leave failed rows out.")] = False,
    raw: Annotated[
        bool,
        typer.Option("--raw", help="CSV: text as it is, even where a spreadsheet would run it as a formula."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write the rows of a run's dataset, in the order of its input, with every column."""
    with connect() as client:
        table = DatasetTable(client, choose(client.status(run_id), dataset), failed=not completed)
        if out == STDOUT:
            to_stdout(table, to, raw=raw)
            return
        path = out or Path(f"{run_id}-{table.dataset.namespace}.{to.value}")
        count = to_file(table, to, path, raw=raw)
    if as_json:
        say_json({"file": str(path), "rows": count, "columns": list(table.columns)})
    else:
        say(f"{count:,} rows in {path}")


def to_file(table: DatasetTable, to: To, path: Path, *, raw: bool = False) -> int:
    """The file is there when it is whole; returns how many rows it holds."""
    with _whole(path) as part:
        if to is To.PARQUET:
            return write_parquet(part, table.rows, table.columns)
        with part.open("w", newline="", encoding="utf-8") as file:
            if to is To.JSONL:
                return write_jsonl(file, table.rows(), table.columns)
            return write_csv(file, table.rows(), table.columns, raw=raw)


def to_stdout(table: DatasetTable, to: To, *, raw: bool = False) -> None:
    """The rows alone, nothing said beside them."""
    if to is To.PARQUET:
        raise BadInputError("Parquet isn't written to stdout: name a file with --out")
    if to is To.JSONL:
        write_jsonl(sys.stdout, table.rows(), table.columns)
    else:
        write_csv(sys.stdout, table.rows(), table.columns, raw=raw)


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        yield part
        os.replace(part, path)  # noqa: PTH105
    except OSError as error:
        raise BadInputError(
            f"{path} can't be written ({error.strerror}): name another file with --out"
        ) from error
    finally:
        part.unlink(missing_ok=True)
