"""What a dataset is seeded from, made readable on this machine."""

import asyncio
from collections.abc import Iterable
from typing import Any

from runtime.context.csv_rows import CsvHandle
from runtime.context.dataset_handle import DatasetHandle
from runtime.engine.csv_files import CsvFiles
from runtime.engine.handle_reads import HandleReads, SheetRows
from runtime.errors import DatasetReadError


class RowSources:
    """One method: `ready`."""

    def __init__(self, csv: CsvFiles, reads: HandleReads | None = None) -> None:
        self._csv = csv
        self._reads = reads

    async def ready(self, run_id: str, rows: Iterable[Any] | DatasetHandle) -> Iterable[Any]:
        """The same rows, to be iterated in a thread of this process."""
        if isinstance(rows, CsvHandle):
            return await self._csv.ready(run_id, rows)
        if not isinstance(rows, DatasetHandle):
            return rows
        if self._reads is None:
            raise DatasetReadError(
                f'dataset "{rows.dataset}" can\'t be read here: this process has no sheets'
            )
        return SheetRows(rows, self._reads, asyncio.get_running_loop(), self._reads.limits)
