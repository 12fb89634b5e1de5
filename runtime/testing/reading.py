"""Rows of datasets in memory, read in input order."""

from typing import Any

from runtime.model import json_value
from runtime.model.dataset import DatasetFacts
from runtime.model.row import RowState
from runtime.model.stored_row import StoredRow, Stretch
from runtime.testing.state import MemoryRow, MemoryState


class MemoryReads:
    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def rows(self, stretch: Stretch) -> list[StoredRow] | None:
        dataset = self._state.datasets.get(stretch.dataset_id)
        if dataset is None:
            return None
        facts = self._state.facts(stretch.dataset_id)
        sheet = self._state.sheets.get((facts.org_id, facts.play, facts.namespace), {})
        states = {RowState.COMPLETED, RowState.FAILED} if stretch.failed else {RowState.COMPLETED}
        found = [
            StoredRow(
                position=at,
                row_key=row.row_key,
                state=row.state,
                data=json_value.dumps(sheet[row.row_key]["data"]).decode(),
                cell_meta=json_value.dumps(sheet[row.row_key]["cell_meta"]).decode(),
            )
            for at, row in sorted(dataset.rows.items())
            if (stretch.from_end or at > stretch.after)
            and row.state in states
            and _is_its_own(row, sheet.get(row.row_key), facts)
        ]
        if stretch.from_end:
            found.reverse()
        return found[stretch.skip : stretch.skip + stretch.limit]


def _is_its_own(row: MemoryRow, known: dict[str, Any] | None, facts: DatasetFacts) -> bool:
    if known is None:
        return False
    return known["run_id"] == facts.run_id or (row.kept and known["write_version"] < facts.write_version)
