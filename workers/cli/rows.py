"""`playlane rows RUN`: the enriched table, or why rows of it failed."""

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from runtime.model import json_value
from runtime.model.dataset import DatasetState
from runtime.model.status import DatasetStatus, RowFailure
from runtime.model.stored_row import StoredRow
from workers.cli.connection import connect
from workers.cli.datasets import DatasetTable, choose
from workers.cli.export import To, to_file
from workers.cli.options import AsJson, RunId
from workers.cli.terminal import plain_table, say, say_json

CELL_CHARS = 40


def rows(
    run_id: RunId,
    dataset: Annotated[str | None, typer.Option(help="Which dataset, if the run has several.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="The first failed rows and why.")] = False,
    limit: Annotated[int, typer.Option(min=1, help="Rows to print.")] = 20,
    csv_file: Annotated[Path | None, typer.Option("--csv", help="Write all rows to this file.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the rows of a run's dataset, in the order of its input, as its sheet holds them now."""
    with connect() as client:
        status = client.status(run_id)
        chosen = choose(status, dataset)
        if failed:
            tell_failures(client.failures(chosen.dataset_id)[:limit], as_json=as_json)
            return
        sheet = DatasetTable(client, chosen, failed=True)
        if csv_file is not None:
            say(f"{to_file(sheet, To.CSV, csv_file):,} rows in {csv_file}")
        elif as_json:
            for row in islice(sheet.stored(), limit):
                say_json({"row_key": row.row_key, "data": _loads(row.data), "cells": _loads(row.cell_meta)})
        else:
            tell_rows(list(islice(sheet.stored(), limit)), chosen)


def tell_rows(found: list[StoredRow], dataset: DatasetStatus) -> None:
    """A table, or in words why there is none."""
    if found:
        Console().print(table(found, dataset.columns))
    elif dataset.rows:
        say(
            f"none of the {dataset.rows:,} rows of dataset {dataset.key} can be shown: none has ended, or newer runs "
            "wrote them"
        )
    else:
        say(f"dataset {dataset.key} has no rows" + (" yet" if dataset.state is DatasetState.SEEDING else ""))


def table(sheet: Iterable[StoredRow], columns: tuple[str, ...]) -> Table:
    """Key and computed columns; long values are cut."""
    shown = plain_table()
    for name in ("row", *columns):
        shown.add_column(name, overflow="ellipsis", no_wrap=True)
    for row in sheet:
        data, meta = _loads(row.data), _loads(row.cell_meta)
        shown.add_row(Text(_cut(row.row_key)), *(Text(_cut(_cell(data, meta, name))) for name in columns))
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


def _cell(data: dict[str, Any], meta: dict[str, Any], name: str) -> str:
    if name not in data:
        return f"<{meta.get(name, {}).get('state', 'missing')}>"
    value = data[name]
    return value if isinstance(value, str) else "" if value is None else json_value.dumps(value).decode()


def _loads(text: str) -> Any:
    return json_value.loads(text.encode())


def _cut(text: str) -> str:
    return text if len(text) <= CELL_CHARS else text[: CELL_CHARS - 1] + "…"
