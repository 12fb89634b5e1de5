"""What a dataset is seeded from, made readable on this machine."""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from runtime.context.csv_rows import CsvHandle
from runtime.context.dataset import RowSource
from runtime.context.dataset_handle import DatasetHandle
from runtime.context.query_rows import QueryRows
from runtime.engine.csv_files import CsvFiles
from runtime.engine.handle_reads import HandleReads, SheetRows
from runtime.errors import DatasetReadError


class RowSources:
    """One method: `ready`."""

    def __init__(self, csv: CsvFiles, reads: HandleReads | None = None) -> None:
        self._csv = csv
        self._reads = reads

    async def ready(self, run_id: str, rows: RowSource) -> Iterable[Any]:
        """The same rows, to be iterated in a thread of this process."""
        if isinstance(rows, CsvHandle):
            return await self._csv.ready(run_id, rows)
        if isinstance(rows, QueryRows):
            raise DatasetReadError(f"{rows.query.name}: its pages can't be asked for here")
        if not isinstance(rows, DatasetHandle):
            return rows
        if self._reads is None:
            raise DatasetReadError(
                f'dataset "{rows.dataset}" can\'t be read here: this process has no sheets'
            )
        return SheetRows(rows, self._reads, asyncio.get_running_loop(), self._reads.limits)


class QueryInput:
    """A query's rows as the input of a dataset: asked for on the loop by `ahead`, taken in a thread."""

    def __init__(self, rows: QueryRows) -> None:
        self._rows = rows
        self._asked = 0
        self._ahead: deque[Any] = deque()

    async def ahead(self, wanted: int) -> None:
        """Have `wanted` rows at hand, or all that are left."""
        while len(self._ahead) < wanted and self._asked < self._rows.count:
            page = await self._rows.page(self._asked, self._rows.count)
            if not page:
                raise DatasetReadError(
                    f"{self._rows.query.name} said that it has {self._rows.count:,} rows, and gave none from "
                    f"{self._asked:,} on; nothing more is asked: start a new run, or mend the tool"
                )
            self._ahead.extend(page)
            self._asked += len(page)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._ahead:
            return self._ahead.popleft()
        if self._asked < self._rows.count:
            raise AssertionError("rows were taken that nobody asked for ahead")
        raise StopIteration
