"""One row: its columns in order, each seeing the earlier ones; a failure stays in the row."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from runtime.context.row_view import RowView
from runtime.context.scope import current_scope
from runtime.engine.cell_run import PLAIN_RULES, Cell, CellRules, RowTurn, cell_of
from runtime.engine.provenance import RowTrace
from runtime.engine.row_scope import RowScope
from runtime.engine.row_text import ended_row
from runtime.engine.stop_sign import StopSign
from runtime.errors import (
    JsonValueError,
    OwnershipLostError,
    PlaylaneError,
    RowStopsError,
    RowWaitsError,
    RunFatalError,
    ServiceUnreachableError,
    WorkerDiedError,
)
from runtime.known_secrets import known_secrets
from runtime.model import json_value
from runtime.model.cell import CellState, StoredCells, cell_meta
from runtime.model.error_text import said
from runtime.model.kept_value import Marks
from runtime.model.row import FinishedRow, InputRow, LaterRow, RowState
from runtime.model.row_wait import RowWait
from runtime.play import Column
from runtime.policy.hints import with_hint

_NEVER_ISOLATED = (RunFatalError, OwnershipLostError, ServiceUnreachableError, RowWaitsError, RowStopsError)


async def run_row(
    row: InputRow,
    columns: Sequence[Column],
    ctx: Any,
    scope: RowScope,
    stored: StoredCells | None = None,
    rules: CellRules = PLAIN_RULES,
    leaving: StopSign | None = None,
) -> FinishedRow:
    """Run the columns of one row. Errors of resolvers end in the row; fatal ones and lost ownership propagate.

    A row whose call must wait comes back waiting, one that may make no further call cancelled: nothing of it is kept
    but its receipts. `stored` is what the sheet has of the row, where a column or a rerun needs it. `leaving` goes up
    before the row's task is cancelled: any other cancellation is its resolver's own.
    """
    outside = current_scope.get()
    try:
        return await _run_columns(row, columns, ctx, scope, stored, rules, leaving)
    except BaseException as error:
        # A resolver may have wrapped, swallowed or cancelled it: what the scope knows counts.
        if scope.fatal is not None or _is_from_outside(error, leaving):
            raise
        if scope.stopped:
            return cancelled_row(row)
        if scope.waits is None:
            raise
        await scope.settled()
        return _waiting(row, scope.waits.wait)
    finally:
        current_scope.set(outside)
        scope.end()


async def _run_columns(
    row: InputRow,
    columns: Sequence[Column],
    ctx: Any,
    scope: RowScope,
    stored: StoredCells | None,
    rules: CellRules,
    leaving: StopSign | None,
) -> FinishedRow:
    current_scope.set(scope)
    shown: dict[str, Any] = {}
    kept: dict[str, Marks] = {}
    ended = _Ended(row=row, max_bytes=scope.limits.row_bytes, trace=scope.trace)
    if scope.trace is not None:
        scope.trace.begin_row(row.input, columns)
    view = RowView(row.input, shown, kept)
    turn = RowTurn(position=row.position, view=view, ctx=ctx, scope=scope, stored=stored, rules=rules)
    for position, column in enumerate(columns):
        name = scope.column = column.name
        ended.begin(column)
        try:
            try:
                cell = await cell_of(column, turn)
            finally:
                if scope.has_tasks:
                    await scope.end_tasks()
        except _NEVER_ISOLATED:
            raise
        except BaseException as error:
            # Whatever an author's resolver raises stays in its row: SystemExit would end the process's loop, a
            # cancellation of its own its slice, over and over.
            if _is_from_outside(error, leaving):
                raise
            scope.check()
            _forget_cancellation()
            problem = error_payload(error, name)
            meta = cell_meta(
                CellState.FAILED, error=problem, completed_at=rules.now_ms(), steps=scope.take_stages()
            )
            return ended.failed(column, columns[position + 1 :], meta, problem)
        if cell.error is not None:
            return ended.failed(column, columns[position + 1 :], cell.meta, cell.error)
        shown[name] = cell.value
        if cell.marks:
            kept[name] = cell.marks
        if column.is_stored:
            ended.add(column, cell)
    return ended.completed()


code_of_rows = _run_columns.__code__
"""Of the frame whose `scope` says which row runs."""


@dataclass(slots=True, kw_only=True)
class _Ended:
    """What a row stores: no scratch column, and no input value under the name of a column that has none."""

    row: InputRow
    max_bytes: int
    trace: RowTrace | None
    data: dict[str, Any] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)

    def begin(self, column: Column) -> None:
        if self.trace is not None:
            self.trace.begin_cell(column)

    def add(self, column: Column, cell: Cell) -> None:
        self.data[column.name], self.meta[column.name] = cell.value, cell.meta
        if self.trace is not None:
            self.trace.end_cell(column, cell.meta)

    def completed(self) -> FinishedRow:
        return self._row(RowState.COMPLETED, None)

    def failed(
        self,
        column: Column,
        later: Sequence[Column],
        meta: dict[str, Any],
        error: dict[str, Any],
    ) -> FinishedRow:
        if self.trace is not None:
            self.trace.end_cell(column, meta)
        self.meta[column.name] = meta
        self.meta.update({one.name: cell_meta(CellState.NOT_RUN) for one in later if one.is_stored})
        self.data.update({one.name: None for one in (column, *later) if one.name in self.row.input})
        return self._row(RowState.FAILED, error)

    def _row(self, state: RowState, error: dict[str, Any] | None) -> FinishedRow:
        if self.trace is not None:
            self.meta.update(self.trace.row_meta())
        return ended_row(self.row, state, self.data, self.meta, error, max_bytes=self.max_bytes)


def error_payload(error: BaseException, column: str) -> dict[str, Any]:
    """A resolver's error as JSON; its text is kept short."""
    if isinstance(error, PlaylaneError):
        payload = error.to_payload()
    else:
        words = said(error) or _WORDLESS.get(type(error), "")
        text = with_hint(error, f"{type(error).__name__}: {words}")
        payload = {"code": "resolver_error", "message": text}
    payload["message"] = _storable(str(payload["message"]))[:2_000]
    known = {"code": payload["code"], "message": payload["message"]}
    with suppress(JsonValueError):  # what an error carries beside its message is not worth the row
        known = json_value.check(payload)
    return known_secrets.redacted_value({**known, "column": column, "type": type(error).__name__})


def _storable(text: str) -> str:
    return text.replace("\x00", "\\0").encode("utf-8", "backslashreplace").decode()


_WORDLESS: dict[type[BaseException], str] = {asyncio.CancelledError: "what it awaited was cancelled"}


def _is_from_outside(error: BaseException, leaving: StopSign | None) -> bool:
    """Whether the slice stops, not the row: then whatever a resolver makes of its cancellation is no result."""
    if leaving is not None:
        return leaving.is_up
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _forget_cancellation() -> None:
    """Of this task by its own resolver: the next row may run in it."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()


def _waiting(row: InputRow, wait: RowWait) -> FinishedRow:
    return _unfinished(row, RowState.WAITING, wait)


def cancelled_row(row: InputRow) -> FinishedRow:
    """The end of a row whose dataset failed before it was through; the sheet keeps what it had."""
    return _unfinished(row, RowState.CANCELLED, None)


def _unfinished(row: InputRow, state: RowState, wait: RowWait | None) -> FinishedRow:
    return FinishedRow(
        position=row.position, row_key=row.row_key, state=state, data=b"", cell_meta=b"", wait=wait
    )


def too_large_row(row: LaterRow, limit: int) -> FinishedRow:
    """The end of a row that no process of this deployment has room for; it is not run."""
    error = JsonValueError(
        "$",
        f"the row's input is {row.size_bytes:,} bytes; a worker process runs at most {limit:,} at once: make the row "
        "smaller, or raise the limit active_rows_bytes",
    )
    problem = json_value.dumps({**error.to_payload(), "type": type(error).__name__})
    return FinishedRow(
        position=row.position,
        row_key=row.row_key,
        state=RowState.FAILED,
        data=b"{}",
        cell_meta=b"{}",
        error=problem,
    )


def died_row(row: InputRow) -> FinishedRow:
    """The end of a row that took process after process down; it is not run again."""
    error = WorkerDiedError(
        f"{row.crashes} worker processes died while they ran this row, the last ones with no other suspect beside it: "
        "it is not run again. Look for what kills or blocks a process in its columns (memory, native code, a call that "
        "never returns), then start a new run"
    )
    problem = {**error.to_payload(), "type": type(error).__name__}
    return FinishedRow(
        position=row.position,
        row_key=row.row_key,
        state=RowState.FAILED,
        data=json_value.dumps(row.input),
        cell_meta=b"{}",
        error=json_value.dumps(problem),
    )
