"""What a resolver is told of its cell as an earlier run left it."""

from dataclasses import dataclass
from typing import Any

from runtime.context.kept_cells import alive
from runtime.model.cell import KEPT, VALUED_CELLS, CellState, StoredCell
from runtime.model.tool_output import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousCell:
    """The cell of this row and column in the sheet; tool results and datasets in `value` are alive.

    Times are milliseconds since 1970; `stale_at` is None for a value that never goes stale, `value` None after a
    failure, whose `error` says what it was.
    """

    value: Any
    state: CellState
    completed_at: int | None = None
    stale_at: int | None = None
    stale_after_seconds: float | None = None
    error: dict[str, Any] | None = None


def previous_cell(cell: StoredCell | None) -> PreviousCell | None:
    """For a resolver; None if the column never came to an answer for this row."""
    if cell is None or cell.state not in VALUED_CELLS | {CellState.FAILED}:
        return None
    failed = cell.state is CellState.FAILED
    return PreviousCell(
        value=None if failed else stored_value(cell),
        state=cell.state,
        completed_at=cell.completed_at,
        stale_at=cell.stale_at,
        stale_after_seconds=cell.meta.get("stale_after_seconds"),
        error=cell.meta.get("error"),
    )


def stored_value(cell: StoredCell) -> Any:
    """The cell's value, alive."""
    marks = cell.meta.get(KEPT)
    return alive(cell.value, marks, origin=Origin.CACHE) if marks else cell.value
