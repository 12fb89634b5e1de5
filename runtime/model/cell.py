"""A cell: one column of one row, with how it came to its value.

Beside each value a sheet row keeps the cell's meta, a JSON object by column name:

- `state`: a CellState.
- `completed_at`: when it ended, in milliseconds since 1970 by the database's clock; also of a failed cell.
- `stale_at`: when it stops being fresh, likewise; null = never; absent = its column says nothing about freshness.
- `stale_after_seconds`: the time to live that `stale_at` comes from.
- `reused`: true if nothing was sent for it: receipts answered, or the cell stored by an earlier run was taken.
- `producer`: the last call that made it: `kind` (tool, play), `id`, and the `tool` or `play`.
- `producers`, `attempts_dropped`, `run_id`, `decide`; and for the row `_row`: with the run option `capture`, see
  `runtime/engine/provenance.py`.
- `error`: of a failed cell: `code`, `message`, `type`, `column`.
- `steps`: of a cell made by a step program: `state` (completed, failed, skipped, unavailable) and `error` by path.
- `kept`: which of its values are tool results or datasets, by JSON pointer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from runtime.model.transitions import terminal


class CellState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CACHED = "cached"  # nothing was sent for it: receipts answered, or a fresh cell was taken as it is
    MISSED = "missed"  # its calls have no value for this input
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
    CellState.QUEUED: frozenset(
        {CellState.RUNNING, CellState.SKIPPED, CellState.NOT_RUN, CellState.CACHED, CellState.MISSED}
    ),
    CellState.RUNNING: frozenset(
        {CellState.COMPLETED, CellState.FAILED, CellState.CACHED, CellState.MISSED, CellState.SKIPPED}
    ),
    **{state: frozenset[CellState]() for state in _ENDS},
}
ENDED_CELLS = terminal(CELL_MOVES)
VALUED_CELLS = frozenset({CellState.COMPLETED, CellState.CACHED, CellState.MISSED})  # a resolver's own answer
SCRATCH_PREFIX = "_"  # columns that later ones see and no sheet keeps


KEPT = "kept"  # where a cell's meta says which of its values are tool results or datasets


def cell_meta(
    state: CellState,
    *,
    error: dict[str, Any] | None = None,
    kept: dict[str, Any] | None = None,
    completed_at: int | None = None,
    producer: dict[str, Any] | None = None,
    reused: bool = False,
    steps: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The meta object stored beside a cell's value."""
    meta: dict[str, Any] = {"state": state.value}
    if completed_at is not None:
        meta["completed_at"] = completed_at
    if reused:
        meta["reused"] = True
    if producer is not None:
        meta["producer"] = producer
    if error is not None:
        meta["error"] = error
    if kept:
        meta[KEPT] = kept
    if steps:
        meta["steps"] = steps
    return meta


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCells:
    """What the sheet has of a row: plain values and cell meta by column."""

    data: Mapping[str, Any]
    cell_meta: Mapping[str, Any]

    def cell(self, column: str) -> "StoredCell | None":
        """The cell of that column if it was ever run."""
        meta = self.cell_meta.get(column)
        if not isinstance(meta, dict) or meta.get("state") not in ENDED_CELLS:
            return None
        return StoredCell(state=CellState(meta["state"]), value=self.data.get(column), meta=meta)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCell:
    """A cell as an earlier run left it; `value` is plain."""

    state: CellState
    value: Any
    meta: dict[str, Any]

    @property
    def completed_at(self) -> int | None:
        return _number(self.meta.get("completed_at"))

    @property
    def stale_at(self) -> int | None:
        return _number(self.meta.get("stale_at"))


def _number(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
