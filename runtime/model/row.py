"""A run row: one input row of a dataset on the run's work list."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from runtime.model.row_wait import RowWait
from runtime.model.transitions import terminal


class RowState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"  # on a boundary; the slice goes on without it
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


ROW_MOVES = {
    RowState.PENDING: frozenset(
        {RowState.RUNNING, RowState.WAITING, RowState.COMPLETED, RowState.FAILED, RowState.CANCELLED}
    ),
    RowState.RUNNING: frozenset({RowState.WAITING, RowState.COMPLETED, RowState.FAILED, RowState.CANCELLED}),
    RowState.WAITING: frozenset({RowState.PENDING, RowState.CANCELLED}),
    RowState.COMPLETED: frozenset[RowState](),
    RowState.FAILED: frozenset[RowState](),
    RowState.CANCELLED: frozenset[RowState](),
}
ENDED_ROWS = terminal(ROW_MOVES)
OPEN_ROWS = frozenset({RowState.PENDING, RowState.RUNNING})


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRow:
    """A row to run; `input` is the parsed input object, `crashes` how many processes died while they held it."""

    position: int
    row_key: str
    input: dict[str, Any]
    crashes: int = 0
    size_bytes: int = 0  # of the input, about


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterRow:
    """A row of a taken slice whose input is read once there is room for it."""

    position: int
    row_key: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRow:
    """A row's end, or its `wait`: `data` and `cell_meta` are JSON text for its sheet row, `error` for its run row."""

    position: int
    row_key: str
    state: RowState
    data: bytes
    cell_meta: bytes
    error: bytes | None = None
    wait: RowWait | None = None  # of a waiting row, which has no values yet
    waited: bool = False  # it asked for durable waits: those still open end with it
    children_ok: int = 0  # child plays that ended inside it
    children_failed: int = 0

    @property
    def size_bytes(self) -> int:
        return len(self.data) + len(self.cell_meta) + len(self.error or b"")
