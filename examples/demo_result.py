"""What a demo prints last, from what its run left."""

from collections.abc import Callable, Iterable
from typing import Any

from runtime.model.status import RunStatus, SheetRow
from runtime.policy.progress import fill

Verdict = Callable[[SheetRow], bool]


def says_so(row: SheetRow) -> bool:
    """The row's own column `agrees`."""
    return row.data.get("agrees") is True


def agreement(rows: Iterable[SheetRow], verdict: Verdict = says_so) -> float | None:
    """Share of rows that are as an independent source of the same facts says; None if there is no row."""
    verdicts = [verdict(row) for row in rows]
    return round(sum(verdicts) / len(verdicts), 4) if verdicts else None


def result_of(status: RunStatus, agree: float | None, *, fill_of: str) -> dict[str, Any]:
    """The demo's result; `fill_of` is the tool whose batches it is about."""
    filled = fill([tool for tool in status.usage if tool.tool == fill_of])
    return {
        "status": status.state.value,
        "rows": sum(dataset.rows for dataset in status.datasets),
        "failed": sum(dataset.failed for dataset in status.datasets),
        "calls": calls_of(status),
        "batches": sum(tool.batches for tool in status.usage),
        "fill": None if filled is None else round(filled, 4),
        "cached": sum(tool.cached for tool in status.usage),
        "seconds": seconds_of(status),
        "agree": agree,
    }


def again_line(status: RunStatus) -> str:
    """What the second run over the same input cost."""
    calls = calls_of(status)
    return f"second run over the same input: {calls:,} provider calls were made, {seconds_of(status):g} s"


def calls_of(status: RunStatus) -> int:
    """Calls sent to providers for this run."""
    return sum(tool.items for tool in status.usage)


def seconds_of(status: RunStatus) -> float:
    """From admission to end, by the database's clock."""
    return round(((status.ended_at or status.now) - status.created_at).total_seconds(), 2)
