"""Whether a stored cell does instead of running its column. Pure.

Without freshness options a column runs in every run; receipts answer its calls. `stale_after_seconds` lets a stored
value do while it is fresh, seen from the beginning of the run, and `recompute` runs the column all the same. A stored
failure is as good as a value for as long, unless `recompute_on_error`; a function of the value says nothing of it, so
then the column runs. A rerun of failed, missing or stale cells keeps every other cell of a row as it is.
"""

from dataclasses import dataclass

from runtime.model.cell import VALUED_CELLS, CellState, StoredCell
from runtime.model.rerun import Only

_ANSWERED = VALUED_CELLS | {CellState.SKIPPED}


@dataclass(frozen=True, slots=True, kw_only=True)
class Freshness:
    """What a column says of its stored cells; `ttl_s` None = nothing, infinite = they never go stale."""

    recompute: bool = False
    recompute_on_error: bool = False
    ttl_s: float | None = None


def is_reused(cell: StoredCell, freshness: Freshness, *, epoch_ms: int) -> bool:
    """Whether a run that began at `epoch_ms` takes the cell as it is."""
    if freshness.recompute or freshness.ttl_s is None:
        return False
    if cell.state is CellState.FAILED:
        return not freshness.recompute_on_error and not _is_over(cell, freshness.ttl_s, epoch_ms)
    return cell.state in VALUED_CELLS and not _is_over(cell, freshness.ttl_s, epoch_ms)


def is_kept_by_rerun(
    cell: StoredCell, only: Only, freshness: Freshness, *, epoch_ms: int, is_after_change: bool
) -> bool:
    """Whether a rerun keeps the cell of a row that it runs; `is_after_change`: an earlier cell got another value."""
    if cell.state not in _ANSWERED:
        return False
    if only is not Only.STALE:
        return True
    if freshness.ttl_s is None and is_after_change:
        return False
    is_stale = cell.stale_at is not None and cell.stale_at <= epoch_ms
    return not is_stale and (freshness.ttl_s is None or not _is_over(cell, freshness.ttl_s, epoch_ms))


def stale_at_ms(completed_at: int, ttl_s: float) -> int | None:
    """When a cell stops being fresh; None = never."""
    return None if ttl_s == float("inf") else int(completed_at + ttl_s * 1000)


def _is_over(cell: StoredCell, ttl_s: float, epoch_ms: int) -> bool:
    return cell.completed_at is None or cell.completed_at + ttl_s * 1000 <= epoch_ms
