"""Where a row's cells come from, kept in their meta when the run captures: calls, what was there to read, branches.

Producers: the calls that made a cell, the newest `producers_per_cell`, the rest counted. Read order, once a row under
`_row`: the columns in the order in which they were there; a stored column could read those before it, one that isn't
stored (`upto`) the first n. Decisions: which branch of a condition was taken.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from runtime.context.tool_result import ToolResult
from runtime.model.cell import CellState
from runtime.model.tool_output import NO_RESULT
from runtime.play import Column
from runtime.policy.limits import Limits

ROW_META = "_row"


@dataclass(slots=True, kw_only=True)
class RowTrace:
    """What is noted of one row; nothing of it is made for a run that doesn't capture."""

    run_id: str
    limits: Limits
    wall_ms: Callable[[], int]
    _calls: list[dict[str, Any]] = field(default_factory=list)
    _dropped: int = 0
    _columns: list[str] = field(default_factory=list)
    _upto: dict[str, int] = field(default_factory=dict)
    _dropped_cells: int = 0

    def begin_row(self, input: Iterable[str], columns: Iterable[Column]) -> None:
        """The row's own columns come first, but for those that will be made."""
        made = {column.name for column in columns}
        shown = (name for name in input if name not in made and not name.startswith("_"))
        self._columns.extend(name for name, _ in zip(shown, range(self.limits.reads_per_row), strict=False))

    def begin_cell(self, column: Column) -> None:
        """A stored column's place in the order says what it could read."""
        self._calls, self._dropped = [], 0
        if not self._columns:
            return
        if column.is_stored and len(self._columns) < self.limits.reads_per_row:
            self._columns.append(column.name)
        elif len(self._upto) < self.limits.reads_per_row:
            self._upto[column.name] = len(self._columns)
        else:
            self._dropped_cells += 1

    @contextmanager
    def call(self, kind: str, id: str, name: str) -> Iterator["CallTrace"]:
        """One call of the cell, however it ends."""
        began_ms = self.wall_ms()
        noted: dict[str, Any] = {"kind": kind, "id": id, kind: name, "at": began_ms, "outcome": "running"}
        self._calls.append(noted)
        if len(self._calls) > self.limits.producers_per_cell:
            self._calls.pop(0)
            self._dropped += 1
        trace = CallTrace()
        try:
            yield trace
        finally:
            noted["outcome"] = trace.outcome
            noted["duration_ms"] = max(0, self.wall_ms() - began_ms)

    def end_cell(self, column: Column, meta: dict[str, Any]) -> None:
        """Add what was noted to the cell's meta."""
        if meta.get("reused") and not self._calls:
            return
        if self._calls:
            meta["producers"] = self._calls
            meta["run_id"] = self.run_id
        if self._dropped:
            meta["attempts_dropped"] = self._dropped
        if column.run_if is not None:
            meta["decide"] = {"branch": "else" if meta["state"] == CellState.SKIPPED else "run"}

    def row_meta(self) -> dict[str, Any]:
        """The row's own entry beside its cells; empty if there was nothing to read."""
        if not self._columns:
            return {}
        reads: dict[str, Any] = {"columns": self._columns}
        if self._upto:
            reads["upto"] = self._upto
        if self._dropped_cells:
            reads["dropped_cells"] = self._dropped_cells
        return {ROW_META: {"reads": reads}}


@dataclass(slots=True)
class CallTrace:
    """How a call ended: `failed` unless it says otherwise."""

    outcome: str = "failed"

    def ended(self, value: Any, *, cached: bool) -> None:
        empty = value is None or (isinstance(value, ToolResult) and value.status == NO_RESULT)
        self.outcome = "cached" if cached else "no_result" if empty else "completed"
