"""A receipt: the durable outcome of a call, in Postgres."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class ReceiptState(StrEnum):
    COMPLETED = "completed"
    FAILED = "failed"  # repairable: the next run may claim it again; terminal: kept until forced
    DISPATCHED = "dispatched"  # written before the ticket of a fenced tool
    UNKNOWN = "unknown"  # sent, and nobody knows what became of it; terminal for a fenced tool


RECEIPT_MOVES = {
    ReceiptState.DISPATCHED: frozenset(
        {ReceiptState.DISPATCHED, ReceiptState.COMPLETED, ReceiptState.FAILED, ReceiptState.UNKNOWN}
    ),
    ReceiptState.FAILED: frozenset(
        {ReceiptState.DISPATCHED, ReceiptState.COMPLETED, ReceiptState.FAILED, ReceiptState.UNKNOWN}
    ),
    ReceiptState.UNKNOWN: frozenset(
        {ReceiptState.DISPATCHED, ReceiptState.COMPLETED, ReceiptState.FAILED, ReceiptState.UNKNOWN}
    ),
    ReceiptState.COMPLETED: frozenset({ReceiptState.COMPLETED}),  # by a refresh only
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """One stored outcome. `output` is the JSON text served to every caller; `fence` is its generation."""

    key: str
    org_id: str
    tool: str
    run_id: str  # the run that produced it
    state: ReceiptState
    fence: int
    output: bytes | None = None
    error: dict[str, Any] | None = None
    terminal: bool = False
    produced_ms: int | None = field(
        default=None, compare=False
    )  # by the database's clock; None = not stored yet
    refreshes: bool = field(default=False, compare=False)  # may replace a completed receipt of an older fence


def replaces(new: Receipt, old: Receipt | None) -> bool:
    """Whether `new` is stored where `old` stands. A completed receipt gives way to a refresh alone."""
    if old is None:
        return True
    if new.state not in RECEIPT_MOVES[old.state]:
        return False
    if old.state is ReceiptState.COMPLETED:
        return new.refreshes and new.fence > old.fence
    return new.fence >= old.fence
