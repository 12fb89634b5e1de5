"""A cell: one column of one row, with how it came to its value."""

from enum import StrEnum
from typing import Any

from runtime.model.transitions import terminal


class CellState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CACHED = "cached"  # every call it made was answered by a receipt
    MISSED = "missed"  # the tool has no value for this input
    SKIPPED = "skipped"  # its condition said no
    NOT_RUN = "not_run"  # a column before it failed


_ENDS = frozenset(
    {
        CellState.COMPLETED,
        CellState.FAILED,
        CellState.CACHED,
        CellState.MISSED,
        CellState.SKIPPED,
        CellState.NOT_RUN,
    }
)
CELL_MOVES = {
    CellState.QUEUED: frozenset({CellState.RUNNING, CellState.SKIPPED, CellState.NOT_RUN, CellState.CACHED}),
    CellState.RUNNING: frozenset({CellState.COMPLETED, CellState.FAILED, CellState.CACHED, CellState.MISSED}),
    **{state: frozenset[CellState]() for state in _ENDS},
}
ENDED_CELLS = terminal(CELL_MOVES)


KEPT = "kept"  # where a cell's meta says which of its values are tool results or datasets


def cell_meta(
    state: CellState, *, error: dict[str, Any] | None = None, kept: dict[str, Any] | None = None
) -> dict[str, Any]:
    """The meta object stored beside a cell's value."""
    meta: dict[str, Any] = {"state": state.value}
    if error is not None:
        meta["error"] = error
    if kept:
        meta[KEPT] = kept
    return meta
