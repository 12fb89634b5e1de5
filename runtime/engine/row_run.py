"""One row: its columns in order, each seeing the earlier ones; a failure stays in the row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any

from runtime.context.row_view import RowView
from runtime.context.scope import current_scope
from runtime.engine.tool_calls import CallContext, ToolCalls
from runtime.errors import (
    JsonValueError,
    OwnershipLostError,
    PlaylaneError,
    RunFatalError,
    ServiceUnreachableError,
)
from runtime.model import json_value
from runtime.model.cell import CellState, cell_meta
from runtime.model.row import FinishedRow, InputRow, RowState
from runtime.play import Column
from runtime.policy.limits import Limits
from runtime.ports import LogLine

_NEVER_ISOLATED = (RunFatalError, OwnershipLostError, ServiceUnreachableError)


@dataclass(slots=True)
class RowScope:
    """What `ctx` does inside one row."""

    calls: ToolCalls
    context: CallContext
    position: int
    limits: Limits
    logs: list[tuple[str, LogLine]]
    asked: int = 0
    cached: int = 0
    _logged: int = field(default=0)

    async def tool(self, *, id: str, tool: str, input: Any) -> Any:
        self.asked += 1
        value, cached = await self.calls.execute(self.context, tool, input)
        self.cached += cached
        return value

    def log(self, text: str, fields: dict[str, Any]) -> None:
        line = LogLine(
            scope=f"row:{self.position}",
            n=self._logged,
            level="info",
            message=text[: self.limits.log_chars],
            fields=fields,
        )
        self._logged += 1
        self.logs.append((self.context.run_id, line))

    def take_cell_state(self) -> CellState:
        """The state of the cell just made: cached if receipts answered every call that it made."""
        state = CellState.CACHED if self.asked and self.asked == self.cached else CellState.COMPLETED
        self.asked = self.cached = 0
        return state


async def run_row(row: InputRow, columns: Sequence[Column], ctx: Any, scope: RowScope) -> FinishedRow:
    """Run the columns of one row. Errors of resolvers end in the row; fatal ones and lost ownership propagate."""
    current_scope.set(scope)
    data: dict[str, Any] = {}
    meta: dict[str, Any] = {}
    view = RowView(row.input, data)
    for position, (name, resolver) in enumerate(columns):
        try:
            value = resolver(view, ctx)
            if isawaitable(value):
                value = await value
            data[name] = _checked(value, name, scope.limits)
            meta[name] = cell_meta(scope.take_cell_state())
        except _NEVER_ISOLATED:
            raise
        except Exception as error:  # noqa: BLE001 - whatever an author's resolver raises stays in its row
            problem = error_payload(error, name)
            meta[name] = cell_meta(CellState.FAILED, error=problem)
            meta.update({later: cell_meta(CellState.NOT_RUN) for later, _ in columns[position + 1 :]})
            return _finished(row, RowState.FAILED, data, meta, problem)
    return _finished(row, RowState.COMPLETED, data, meta, None)


def _checked(value: Any, column: str, limits: Limits) -> Any:
    json_value.check(value, path=f"$.{column}", max_depth=limits.value_depth)
    if type(value) in (str, list, dict, tuple):
        size = len(json_value.dumps(value))
        if size > limits.cell_bytes:
            raise JsonValueError(
                f"$.{column}", f"{size} bytes are more than a cell holds ({limits.cell_bytes})"
            )
    return value


def error_payload(error: Exception, column: str) -> dict[str, Any]:
    """A resolver's error as JSON; its text is kept short."""
    if isinstance(error, PlaylaneError):
        payload = error.to_payload()
    else:
        payload = {"code": "resolver_error", "message": f"{type(error).__name__}: {error}"}
    payload["message"] = _storable(str(payload["message"]))[:2_000]
    return {**payload, "column": column, "type": type(error).__name__}


def _storable(text: str) -> str:
    return text.replace("\x00", "\\0").encode("utf-8", "backslashreplace").decode()


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
