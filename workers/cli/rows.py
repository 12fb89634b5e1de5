"""`playlane rows RUN`: the enriched table, or why rows of it failed."""

import csv
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from runtime.client import PlayClient
from runtime.errors import BadInputError
from runtime.model import json_value
from runtime.model.status import DatasetStatus, RowFailure, RunStatus, SheetRow
from workers.cli.connection import connect
from workers.cli.options import AsJson, RunId
from workers.cli.terminal import say, say_json

CELL_CHARS = 40


def rows(
    run_id: RunId,
    dataset: Annotated[str | None, typer.Option(help="Which dataset, if the run has several.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="The first failed rows and why.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Rows to print.")] = 20,
    csv_file: Annotated[Path | None, typer.Option("--csv", help="Write all rows to this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the rows of a run's dataset as its sheet holds them now."""
    with connect() as client:
        status = client.status(run_id)
        chosen = choose(status, dataset)
        if failed:
            tell_failures(client.failures(chosen.dataset_id)[:limit], as_json=as_json)
            return
        sheet = of_run(client, status, chosen)
        if csv_file is not None:
            say(f"{write_csv(csv_file, sheet):,} rows in {csv_file}")
        elif as_json:
            for row in islice(sheet, limit):
                say_json({"row_key": row.row_key, "data": row.data, "cells": row.cell_meta})
        else:
            Console().print(table(islice(sheet, limit), chosen.columns))


def choose(status: RunStatus, key: str | None) -> DatasetStatus:
    """The dataset of that key, or the only one; raises BadInputError that lists them."""
    known = {one.key: one for one in status.datasets}
    if key is None and len(known) == 1:
        return next(iter(known.values()))
    if key in known:
        return known[key]
    names = ", ".join(known) or "none yet"
    raise BadInputError(f"run {status.run_id} has these datasets: {names}; name one with --dataset")


def of_run(client: PlayClient, status: RunStatus, dataset: DatasetStatus) -> Iterator[SheetRow]:
    """The sheet's rows that this run wrote last: a sheet is shared by the runs of a play."""
    sheet = client.sheet(status.play, dataset.namespace, org_id=status.org_id)
    return (row for row in sheet if row.run_id == status.run_id)


def table(sheet: Iterable[SheetRow], columns: tuple[str, ...]) -> Table:
    """Key and computed columns; long values are cut."""
    shown = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("row", *columns):
        shown.add_column(name, overflow="ellipsis", no_wrap=True)
    for row in sheet:
        shown.add_row(Text(_cut(row.row_key)), *(Text(_cut(_cell(row, name))) for name in columns))
    return shown


def tell_failures(failures: list[RowFailure], *, as_json: bool) -> None:
    """One line a failed row."""
    for failure in failures:
        if as_json:
            say_json({"row": failure.position + 1, "row_key": failure.row_key, "error": failure.error})
        else:
            error = failure.error or {}
            say(
                f"row {failure.position + 1} ({failure.row_key}), {error.get('column')}: {error.get('message')}"
            )
    if not failures and not as_json:
        say("no row has failed")


def write_csv(path: Path, sheet: Iterable[SheetRow]) -> int:
    """All columns of all rows; a value that is not text or a number is written as JSON."""
    count = 0
    with path.open("w", newline="", encoding="utf-8") as file:
        writer: Any = None
        for row in sheet:
            if writer is None:
                writer = csv.DictWriter(file, list(row.data), extrasaction="ignore", restval="")
                writer.writeheader()
            writer.writerow({name: _text(value) for name, value in row.data.items()})
            count += 1
    return count


def _cell(row: SheetRow, name: str) -> str:
    meta = row.cell_meta.get(name, {})
    if name not in row.data:
        return f"<{meta.get('state', 'missing')}>"
    return _text(row.data[name])


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json_value.dumps(value).decode()


def _cut(text: str) -> str:
    return text if len(text) <= CELL_CHARS else text[: CELL_CHARS - 1] + "…"
