"""What a run looks like from outside, as read in one look at the database."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from runtime.model.dataset import DatasetState
from runtime.model.run import RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetStatus:
    """Counts come from commits; `rows` are admitted rows, `duplicates` were left out.

    `kept`: rows of a rerun that stand as they were; `left_out`: rows seen before, or of which a rerun has nothing.
    """

    dataset_id: int
    key: str
    namespace: str
    state: DatasetState
    columns: tuple[str, ...]
    rows: int
    duplicates: int
    completed: int
    failed: int
    cancelled: int
    superseded: int
    pages_seeded: int
    pages_total: int | None
    pages_settled: int
    created_at: datetime
    ended_at: datetime | None
    kept: int = 0
    left_out: int = 0

    @property
    def open_rows(self) -> int:
        """Admitted rows that have not ended."""
        return self.rows - self.completed - self.failed - self.cancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUsage:
    """What a run had sent and answered for one tool, summed over all workers."""

    tool: str
    items: int
    batches: int
    capacity: int
    cached: int
    followed: int
    credits: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    run_id: str
    org_id: str
    play: str
    input: Any
    state: RunState
    attempt: int
    result: Any
    error: dict[str, Any] | None
    datasets: tuple[DatasetStatus, ...]
    usage: tuple[ToolUsage, ...]
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    now: datetime  # the database's clock at the look
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildCounts:
    """Child plays that ended inside a run (`ok`, `failed`); the child runs below it, at any depth."""

    ok: int = 0
    failed: int = 0
    runs: int = 0
    runs_ended: int = 0
    runs_failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureKind:
    """Failed rows of one dataset with one error code, and the first of them."""

    dataset: str
    code: str
    rows: int
    row_key: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CellCount:
    """Cells of one column in one state."""

    dataset: str
    column: str
    state: str
    cells: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SheetRow:
    """One row of a sheet as stored."""

    row_key: str
    data: dict[str, Any]
    cell_meta: dict[str, Any]
    run_id: str
    write_version: int
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFailure:
    position: int
    row_key: str
    error: dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLog:
    scope: str
    n: int
    level: str
    message: str
    fields: dict[str, Any]
    at: datetime
