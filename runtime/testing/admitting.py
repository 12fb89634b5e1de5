"""Which rows of a page a dataset admits, in memory."""

from collections.abc import Sequence
from typing import Any

from runtime.model import json_value
from runtime.model.cell import SCRATCH_PREFIX
from runtime.model.dataset import DatasetMode, SeedRow
from runtime.model.rerun import Only
from runtime.model.row import RowState
from runtime.model.run import ENDED_RUNS
from runtime.testing.state import MemoryDataset, MemoryRow, MemoryState


def admit(state: MemoryState, dataset: MemoryDataset, page: int, rows: Sequence[SeedRow], given: int) -> None:
    """Put the page's rows on the work list, or count why not."""
    run = state.runs[dataset.new.run_id].new
    only = Only.of(run.options)
    sheet = state.sheets.setdefault((run.org_id, run.play, dataset.new.namespace), {})
    fresh: set[str] = set()
    for row in rows:
        if row.row_key in dataset.keys or row.row_key in fresh:
            continue
        fresh.add(row.row_key)
        stands = RowState.PENDING
        if only is not None:
            stands = _rerun(sheet.get(row.row_key), only, dataset, state.runs[run.run_id].epoch_ms)
        elif dataset.new.mode is DatasetMode.NET_NEW and not _take(state, sheet, row.row_key, run.run_id):
            stands = RowState.CANCELLED
        if stands is RowState.CANCELLED:
            dataset.left_out += 1
            continue
        dataset.kept += stands is not RowState.PENDING
        dataset.keys.add(row.row_key)
        value = json_value.loads(row.input)
        dataset.rows[row.position] = MemoryRow(
            page=page, row_key=row.row_key, input=value, state=stands, kept=stands is not RowState.PENDING
        )
    dataset.duplicates += given - len(fresh)


def _take(state: MemoryState, sheet: dict[str, dict[str, Any]], row_key: str, run_id: str) -> bool:
    known = sheet.get(row_key)
    if known is None:
        sheet[row_key] = {
            "data": {},
            "cell_meta": {},
            "write_version": 0,
            "run_id": run_id,
            "state": "pending",
        }
        return True
    owner = state.runs.get(known["run_id"])
    is_theirs = known["run_id"] != run_id and owner is not None and owner.state not in ENDED_RUNS
    if known["state"] != "pending" or is_theirs:
        return False
    known["run_id"] = run_id
    return True


def _rerun(known: dict[str, Any] | None, only: Only, dataset: MemoryDataset, epoch_ms: int) -> RowState:
    """PENDING: to be run; COMPLETED or FAILED: it stands as it is; CANCELLED: there is nothing of it."""
    columns = [name for name in dataset.new.columns if not name.startswith(SCRATCH_PREFIX)]
    stored = None if known is None or known["state"] == "pending" else known
    match only:
        case Only.FAILED:
            wanted = stored is not None and stored["state"] == RowState.FAILED
        case Only.MISSING:
            wanted = stored is None or any(name not in stored["cell_meta"] for name in columns)
        case Only.STALE:
            cells = {} if stored is None else stored["cell_meta"]
            moments = [cells.get(name, {}).get("stale_at") for name in columns]
            wanted = any(moment is not None and moment <= epoch_ms for moment in moments)
    if wanted:
        return RowState.PENDING
    return RowState.CANCELLED if stored is None else RowState(stored["state"])
