"""Rows behind a dataset's handle: plainly for rows and steps; for a body journaled, by digest where they are many."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from runtime.context.dataset_handle import DatasetHandle
from runtime.errors import DatasetReadError, InputChangedError
from runtime.model import json_value
from runtime.model.operation import JournalEntry, Op, OpKind, OutcomeJson
from runtime.model.stored_row import StoredRow, Stretch, rows_digest
from runtime.policy.limits import Limits
from runtime.ports import SheetReads

ROWS = "rows"


class HandleReads:
    """ReadsRows of a process's rows and steps; and what `OpKind.READ` does for its bodies."""

    def __init__(self, sheets: SheetReads, limits: Limits) -> None:
        self._sheets = sheets
        self.limits = limits

    async def read_rows(self, stretch: Stretch, *, name: str, keep: bool = False) -> Sequence[StoredRow]:
        rows = await self._sheets.rows(stretch)
        if rows is None:
            raise DatasetReadError(
                f'dataset "{name}" is not stored any more: its rows went with its run; keep what is needed '
                "later in a cell or in the result"
            )
        return rows

    async def perform(self, args: dict[str, Any]) -> OutcomeJson:
        """The outcome of a body's read: its digest, and the rows, which a journal keeps only where they are few."""
        rows = await self.read_rows(args["stretch"], name=args["name"])
        return {"ok": {"digest": rows_digest(rows), ROWS: [_parts(row) for row in rows]}}

    async def whole(self, entry: JournalEntry, op: Op | None) -> JournalEntry:
        """A journal's entry as its body is to meet it; raises InputChangedError if other rows are there now."""
        kept = entry.outcome.get("ok")
        if entry.kind != OpKind.READ or not isinstance(kept, dict) or ROWS in kept or op is None:
            return entry
        outcome = await self.perform(op.args)
        if outcome["ok"]["digest"] != kept["digest"]:
            raise InputChangedError(
                f'dataset "{op.args["name"]}": a newer run has written its rows since this run read them '
                f"({entry.op_key}), so its body can't be replayed; this run is failed and not retried: start a new run"
            )
        return replace(entry, outcome={**entry.outcome, **outcome})


def journal_form(entry: JournalEntry, op: Op, limits: Limits) -> JournalEntry:
    """The entry as it is stored: rows of a read only where they are few and small."""
    ok = entry.outcome.get("ok")
    if op.kind is not OpKind.READ or not isinstance(ok, dict) or ROWS not in ok:
        return entry
    if op.args["keep"] and len(json_value.dumps(ok[ROWS])) <= limits.read_inline_bytes:
        return entry
    return replace(entry, outcome={**entry.outcome, "ok": {"digest": ok["digest"]}})


def _parts(row: StoredRow) -> list[Any]:
    return [row.position, row.row_key, row.state.value, row.data, row.cell_meta]


class SheetRows:
    """The rows of a settled dataset as the input of another: iterated in a thread, page by page."""

    def __init__(
        self, handle: DatasetHandle, reads: HandleReads, loop: asyncio.AbstractEventLoop, limits: Limits
    ) -> None:
        self._handle = handle
        self._reads = reads
        self._loop = loop
        self._limits = limits

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if self._handle.dataset_id is None:
            raise DatasetReadError(f'dataset "{self._handle.dataset}": this handle names no stored dataset')
        after = -1
        while rows := self._page(self._handle.dataset_id, after):
            for row in rows:
                yield json_value.loads(row.data.encode())
            after = rows[-1].position

    def _page(self, dataset_id: int, after: int) -> Sequence[StoredRow]:
        stretch = Stretch(dataset_id=dataset_id, after=after, limit=self._limits.handle_page_rows)
        reading = asyncio.run_coroutine_threadsafe(
            self._reads.read_rows(stretch, name=self._handle.dataset), self._loop
        )
        return reading.result(self._limits.task_call_s)
