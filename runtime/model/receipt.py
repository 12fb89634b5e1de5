"""A receipt: the durable outcome of a call, in Postgres."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class ReceiptState(StrEnum):
    COMPLETED = "completed"
    FAILED = "failed"  # repairable: the next run may claim it again; terminal: kept until forced
    DISPATCHED = "dispatched"  # written before the ticket of a fenced tool
    UNKNOWN = "unknown"  # sent, and nobody knows what became of it


RECEIPT_MOVES = {
    ReceiptState.DISPATCHED: frozenset({ReceiptState.COMPLETED, ReceiptState.FAILED, ReceiptState.UNKNOWN}),
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

    def answers(self, run_id: str) -> bool:
        """Whether a caller of `run_id` is served by this receipt instead of a new call."""
        if self.state is ReceiptState.COMPLETED:
            return True
        if self.state is ReceiptState.FAILED:
            return self.terminal or self.run_id == run_id
        return self.state is ReceiptState.UNKNOWN and self.run_id == run_id
