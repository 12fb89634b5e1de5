"""A run's status as tables for people and as one JSON object for machines."""

from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from rich.table import Table
from rich.text import Text

from runtime.model.status import RunStatus
from runtime.policy.progress import fill
from workers.cli.terminal import plain_table


def summary(status: RunStatus) -> list[Table]:
    """One table of datasets and one of tools, those that there are."""
    tables: list[Table] = []
    if status.datasets:
        tables.append(_datasets(status))
    if status.usage:
        tables.append(_tools(status))
    return tables


def status_json(status: RunStatus) -> dict[str, Any]:
    """The whole status as a JSON object."""
    return plain(status)


def _datasets(status: RunStatus) -> Table:
    doubles = any(
        one.duplicates for one in status.datasets
    )  # rows whose key another row of the input had before
    kept = any(one.kept for one in status.datasets)  # rows of a rerun that stand as they were
    left_out = any(one.left_out for one in status.datasets)  # seen before, or nothing to rerun
    more = (("duplicates", doubles), ("kept", kept), ("left out", left_out))
    names = ("rows", "completed", "failed", "cancelled", *(name for name, shown in more if shown))
    table = _table("dataset", "state", *names, texts=2)
    for one in status.datasets:
        counts = [one.rows, one.completed, one.failed, one.cancelled]
        counts += [one.duplicates] if doubles else []
        counts += [one.kept] if kept else []
        counts += [one.left_out] if left_out else []
        table.add_row(Text(one.key), one.state.value, *(f"{count:,}" for count in counts))
    return table


def _tools(status: RunStatus) -> Table:
    table = _table("tool", "calls", "batches", "full", "cached", "followed", "credits", texts=1)
    for one in status.usage:
        filled = fill([one])
        table.add_row(
            Text(one.tool),
            f"{one.items:,}",
            f"{one.batches:,}",
            "-" if filled is None else f"{filled:.0%}",
            f"{one.cached:,}",
            f"{one.followed:,}",
            f"{one.credits:,g}",
        )
    return table


def _table(*names: str, texts: int) -> Table:
    table = plain_table()
    for position, name in enumerate(names):
        table.add_column(name, justify="left" if position < texts else "right", no_wrap=position >= texts)
    return table


def plain(value: Any) -> Any:
    """A dataclass as JSON values."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value
