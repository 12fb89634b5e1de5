"""A write that Postgres refuses as it is: cut in halves until the row that it refuses is alone."""

from dataclasses import replace

from runtime.model import json_value
from runtime.model.row import FinishedRow, RowState
from runtime.ports import RowWrite, SliceRows


def halves(write: RowWrite) -> tuple[RowWrite, RowWrite] | None:
    """Two writes that do the same; None for a write of one row or none. A slice is final with its last row."""
    pairs = [(n, row) for n, part in enumerate(write.slices) for row in part.rows]
    if len(pairs) < 2:
        return None if len(write.slices) < 2 else _by_slices(write)
    middle = len(pairs) // 2
    first, second = _rows_of(write, pairs[:middle]), _rows_of(write, pairs[middle:])
    early = tuple(
        replace(part, rows=first[n], final=part.final and not second.get(n))
        for n, part in enumerate(write.slices)
        if n in first
    )
    late = tuple(
        replace(part, rows=second.get(n, ()))
        for n, part in enumerate(write.slices)
        if n in second or n not in first
    )
    return replace(write, slices=early), replace(write, slices=late, usage=(), logs=())


def _by_slices(write: RowWrite) -> tuple[RowWrite, RowWrite]:
    first, rest = write.slices[:1], write.slices[1:]
    return replace(write, slices=first), replace(write, slices=rest, usage=(), logs=())


def _rows_of(write: RowWrite, pairs: list[tuple[int, FinishedRow]]) -> dict[int, tuple[FinishedRow, ...]]:
    found: dict[int, list[FinishedRow]] = {}
    for n, row in pairs:
        found.setdefault(n, []).append(row)
    return {n: tuple(rows) for n, rows in found.items()}


def without_values(write: RowWrite, reason: str) -> RowWrite | None:
    """The write of one row as a failed row that says why; None if it has no row, or is that already."""
    rows = [row for part in write.slices for row in part.rows]
    if len(rows) != 1 or rows[0].data == _NO_VALUES:
        return None
    problem = {
        "code": "row_refused",
        "type": "JsonValueError",
        "message": f"the row's values can't be stored and are not kept: {reason}; the row is not run again by itself",
    }
    failed = replace(
        rows[0],
        state=RowState.FAILED,
        data=_NO_VALUES,
        cell_meta=_NO_VALUES,
        error=json_value.dumps(problem),
        wait=None,
    )
    return replace(write, slices=tuple(_with(part, failed) for part in write.slices))


def _with(part: SliceRows, row: FinishedRow) -> SliceRows:
    return replace(part, rows=(row,)) if part.rows else part


_NO_VALUES = b"{}"
