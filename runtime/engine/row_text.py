"""What a finished row stores: checked as a whole, since a resolver may change a value that it was shown."""

from collections.abc import Mapping
from typing import Any

from runtime.errors import JsonValueError
from runtime.model import json_value
from runtime.model.cell import CellState, cell_meta
from runtime.model.row import FinishedRow, InputRow, RowState

_CONTAINERS = (dict, list, tuple)


def ended_row(
    row: InputRow,
    state: RowState,
    data: Mapping[str, Any],
    meta: dict[str, Any],
    error: dict[str, Any] | None,
    *,
    max_bytes: int,
) -> FinishedRow:
    """The row as it is stored; one that can't be stored as a whole fails and keeps of its input what can."""
    try:
        text = row_text(row.input, data, max_bytes=max_bytes)
    except JsonValueError as bad:
        column = _column_of(bad.path, data)
        state, text = RowState.FAILED, _storable_text(row.input, max_bytes=max_bytes)
        error = {**bad.to_payload(), "column": column, "type": type(bad).__name__}
        meta = {
            name: cell_meta(CellState.FAILED, error=error) if name == column else cell_meta(CellState.NOT_RUN)
            for name in meta
        }
    return FinishedRow(
        position=row.position,
        row_key=row.row_key,
        state=state,
        data=text,
        cell_meta=json_value.dumps(meta),
        error=None if error is None else json_value.dumps(error),
    )


def row_text(input: Mapping[str, Any], data: Mapping[str, Any], *, max_bytes: int) -> bytes:
    """JSON text of the row; raises JsonValueError with the path of what can't be stored or makes it too big."""
    row = {**input, **data}
    if any(type(value) in _CONTAINERS for value in row.values()):
        json_value.check(row, max_depth=_ROW_DEPTH)
    text = json_value.dumps(row)
    if len(text) > max_bytes:
        path, size = json_value.heaviest(row, "$")
        raise JsonValueError(
            path, f"{size:,} of the row's {len(text):,} bytes; a row holds {max_bytes:,} with all its columns"
        )
    return text


_ROW_DEPTH = 501  # a cell's own depth, in its row


def _storable_text(input: Mapping[str, Any], *, max_bytes: int) -> bytes:
    text = json_value.dumps({name: value for name, value in input.items() if _is_storable(value)})
    return text if len(text) <= max_bytes else b"{}"


def _is_storable(value: Any) -> bool:
    try:
        json_value.check(value)
    except JsonValueError:
        return False
    return True


def _column_of(path: str, columns: Mapping[str, Any]) -> str | None:
    """Which of the columns a path such as `$.found[3]` leads into."""
    inside = path.removeprefix("$.")
    found = (name for name in columns if inside == name or inside.startswith((f"{name}.", f"{name}[")))
    return next(found, None)
