"""One row: its columns in order, each seeing the earlier ones; a failure stays in the row."""

import asyncio
from collections.abc import Mapping, Sequence
from inspect import isawaitable
from typing import Any

from runtime.context.row_view import RowView
from runtime.context.scope import current_scope
from runtime.engine.row_scope import RowScope
from runtime.errors import (
    JsonValueError,
    OwnershipLostError,
    PlaylaneError,
    RunFatalError,
    ServiceUnreachableError,
    WorkerDiedError,
)
from runtime.model import json_value
from runtime.model.cell import CellState, cell_meta
from runtime.model.kept_value import KeptValue, Marks, plain
from runtime.model.row import FinishedRow, InputRow, RowState
from runtime.model.row_wait import RowWait
from runtime.play import Column
from runtime.policy.limits import Limits

_NEVER_ISOLATED = (RunFatalError, OwnershipLostError, ServiceUnreachableError)


async def run_row(row: InputRow, columns: Sequence[Column], ctx: Any, scope: RowScope) -> FinishedRow:
    """Run the columns of one row. Errors of resolvers end in the row; fatal ones and lost ownership propagate.

    A row whose call must wait comes back waiting: nothing of it is kept but its receipts.
    """
    try:
        return await _run_columns(row, columns, ctx, scope)
    except BaseException as error:
        # A resolver may have wrapped, swallowed or cancelled it: what the scope knows counts.
        if scope.waits is None or scope.fatal is not None or _is_from_outside(error):
            raise
        return _waiting(row, scope.waits.wait)


async def _run_columns(row: InputRow, columns: Sequence[Column], ctx: Any, scope: RowScope) -> FinishedRow:
    current_scope.set(scope)
    data: dict[str, Any] = {}
    meta: dict[str, Any] = {}
    kept: dict[str, Marks] = {}
    view = RowView(row.input, data, kept)
    for position, (name, resolver) in enumerate(columns):
        scope.column = name
        try:
            value = resolver(view, ctx)
            if isawaitable(value):
                value = await value
            scope.check()
            data[name], marks = _checked(value, name, scope.limits)
            meta[name] = cell_meta(scope.take_cell_state(), kept=marks)
            if marks:
                kept[name] = marks
        except _NEVER_ISOLATED:
            raise
        except (Exception, SystemExit, KeyboardInterrupt, GeneratorExit) as error:  # noqa: BLE001
            # Whatever an author's resolver raises stays in its row; SystemExit would end the process's loop.
            scope.check()
            problem = error_payload(error, name)
            meta[name] = cell_meta(CellState.FAILED, error=problem)
            meta.update({later: cell_meta(CellState.NOT_RUN) for later, _ in columns[position + 1 :]})
            return _finished(row, RowState.FAILED, data, meta, problem)
    return _finished(row, RowState.COMPLETED, data, meta, None)


def _checked(value: Any, column: str, limits: Limits) -> tuple[Any, Marks]:
    """The cell's plain value, and the marks of the tool results and datasets in it."""
    value, marks = _plain(value, f"$.{column}", limits.value_depth)
    if marks or type(value) in (str, list, dict, tuple):
        size = len(json_value.dumps(value)) + (len(json_value.dumps(marks)) if marks else 0)
        if size > limits.cell_bytes:
            raise JsonValueError(
                f"$.{column}", f"{size} bytes are more than a cell holds ({limits.cell_bytes})"
            )
    return value, marks


def _plain(value: Any, path: str, depth: int) -> tuple[Any, Marks]:
    """Most values are plain: one walk. Only what is refused is searched for kept values."""
    marks: Marks = {}
    try:
        if not isinstance(value, KeptValue):
            return json_value.check(value, path=path, max_depth=depth), marks
    except JsonValueError:
        value, marks = plain(value, max_depth=depth)
        if not marks:
            raise
    else:
        value, marks = plain(value, max_depth=depth)
    return json_value.check(value, path=path, max_depth=depth), marks


def error_payload(error: BaseException, column: str) -> dict[str, Any]:
    """A resolver's error as JSON; its text is kept short."""
    if isinstance(error, PlaylaneError):
        payload = error.to_payload()
    else:
        payload = {"code": "resolver_error", "message": f"{type(error).__name__}: {error}"}
    payload["message"] = _storable(str(payload["message"]))[:2_000]
    return {**payload, "column": column, "type": type(error).__name__}


def _storable(text: str) -> str:
    return text.replace("\x00", "\\0").encode("utf-8", "backslashreplace").decode()


def _is_from_outside(error: BaseException) -> bool:
    """Whether the slice stops, not the row. A group of tasks leaves a count of cancellations behind (3.11)."""
    task = asyncio.current_task()
    is_cancelled = isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
    return is_cancelled or isinstance(error, KeyboardInterrupt | SystemExit)


def _waiting(row: InputRow, wait: RowWait) -> FinishedRow:
    return FinishedRow(
        position=row.position,
        row_key=row.row_key,
        state=RowState.WAITING,
        data=b"",
        cell_meta=b"",
        wait=wait,
    )


def died_row(row: InputRow) -> FinishedRow:
    """The end of a row that took process after process down; it is not run again."""
    error = WorkerDiedError(
        f"{row.crashes} worker processes died while they ran this row, the last ones with no other suspect beside it: "
        "it is not run again. Look for what kills or blocks a process in its columns (memory, native code, a call that "
        "never returns), then start a new run"
    )
    problem = {**error.to_payload(), "type": type(error).__name__}
    return _finished(row, RowState.FAILED, {}, {}, problem)


def _finished(
    row: InputRow,
    state: RowState,
    data: Mapping[str, Any],
    meta: Mapping[str, Any],
    error: dict[str, Any] | None,
) -> FinishedRow:
    return FinishedRow(
        position=row.position,
        row_key=row.row_key,
        state=state,
        data=json_value.dumps({**row.input, **data}),
        cell_meta=json_value.dumps(meta),
        error=None if error is None else json_value.dumps(error),
    )
