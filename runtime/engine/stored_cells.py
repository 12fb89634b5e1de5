"""What the rows of a slice need to know of earlier runs, read once a slice and only where something asks for it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from runtime.engine.cell_run import CellRules
from runtime.model.cell import StoredCells
from runtime.model.dataset import DatasetFacts
from runtime.model.rerun import Only
from runtime.model.row import InputRow
from runtime.model.slice import TakenSlice
from runtime.play import Column


class ReadsStoredRows(Protocol):
    async def stored_rows(self, facts: DatasetFacts, row_keys: Sequence[str]) -> dict[str, StoredCells]: ...


async def stored_rows(
    store: ReadsStoredRows, facts: DatasetFacts, rows: Sequence[InputRow], columns: Sequence[Column]
) -> Mapping[str, StoredCells]:
    """The sheet's rows of these by key; nothing is read if no column and no rerun asks."""
    needed = Only.of(facts.options) is not None or any(column.reads_stored for column in columns)
    if not needed or not rows:
        return {}
    return await store.stored_rows(facts, [row.row_key for row in rows])


def cell_rules(taken: TakenSlice) -> CellRules:
    """How the rows of a slice judge and stamp their cells."""
    return CellRules(
        epoch_ms=taken.facts.epoch_ms, now_ms=_store_clock(taken), only=Only.of(taken.facts.options)
    )


def _store_clock(taken: TakenSlice) -> Callable[[], int]:
    """The store's clock as of the take, carried on by this process's: a skewed machine stamps no wrong times."""
    loop = asyncio.get_running_loop()
    since = loop.time()
    return lambda: taken.taken_ms + int((loop.time() - since) * 1000)
