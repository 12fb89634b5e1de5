"""A dataset: the rows of one `ctx.dataset(...).run()`; ends when all its pages are settled."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from runtime.model.transitions import terminal


class DatasetState(StrEnum):
    SEEDING = "seeding"  # its body still adds pages; pages run meanwhile
    RUNNING = "running"  # all pages are known
    FAILING = "failing"  # a row failed under fail-fast; the rest winds down
    SETTLED = "settled"
    FAILED = "failed"
    CANCELLED = "cancelled"


DATASET_MOVES = {
    DatasetState.SEEDING: frozenset(
        {DatasetState.RUNNING, DatasetState.FAILING, DatasetState.FAILED, DatasetState.CANCELLED}
    ),
    DatasetState.RUNNING: frozenset(
        {DatasetState.FAILING, DatasetState.SETTLED, DatasetState.FAILED, DatasetState.CANCELLED}
    ),
    DatasetState.FAILING: frozenset({DatasetState.FAILED, DatasetState.CANCELLED}),
    DatasetState.SETTLED: frozenset[DatasetState](),
    DatasetState.FAILED: frozenset[DatasetState](),
    DatasetState.CANCELLED: frozenset[DatasetState](),
}
ENDED_DATASETS = terminal(DATASET_MOVES)
OPEN_DATASETS = frozenset(DatasetState) - ENDED_DATASETS
FAIL_FAST = "fail"  # an `on_row_error`: the first failed row ends its dataset
WINDING_DATASETS = ENDED_DATASETS | {DatasetState.FAILING}  # nothing of them is started any more


class DatasetMode(StrEnum):
    DEFAULT = "default"  # every row of the input
    NET_NEW = "net_new"  # only rows whose key no run has brought to an end before


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDataset:
    """What a body pins when it creates a dataset."""

    run_id: str
    key: str
    namespace: str
    columns: tuple[str, ...]
    source_hash: str
    on_row_error: str = "isolate"
    mode: DatasetMode = DatasetMode.DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDataset:
    """Where seeding stands; `pages_total` is None until the whole input is in."""

    dataset_id: int
    pages_seeded: int
    pages_total: int | None
    next_position: int  # ordinal of the next input row to seed
    rows_seeded: int
    duplicates: int
    input_digest: str  # rolling digest of all input rows below `next_position`


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedRow:
    """One input row: its ordinal in the input, its key and its JSON text."""

    position: int
    row_key: str
    input: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedPage:
    """A page to seed: positions [first, end), rows whose key is new win, the rest count as duplicates."""

    dataset_id: int
    run_id: str
    attempt: int
    page: int
    first_position: int
    end_position: int
    rows: tuple[SeedRow, ...]
    input_digest: str  # rolling digest including this page
    input_columns: tuple[str, ...] = ()  # of all rows so far, in the order in which they were met


@dataclass(frozen=True, slots=True, kw_only=True)
class SeededPage:
    """What became of a page that was seeded."""

    left_out: int  # rows that were not admitted
    unclaimed: int  # pages of the dataset, this one included, that are not out yet


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetFacts:
    """What a row worker must know of a dataset; constant for its life."""

    dataset_id: int
    run_id: str
    org_id: str
    play: str
    key: str
    namespace: str
    columns: tuple[str, ...]
    source_hash: str
    on_row_error: str
    options: dict[str, Any]
    write_version: int  # of the run in the sheet: a newer run's write wins
    epoch_ms: int = 0  # when the run was created, by the database's clock


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedDataset:
    """The dataset's boundary outcome was written; `run_waits` means a resume must be published."""

    run_id: str
    dataset_id: int
    run_waits: bool
    key: str = ""
    state: DatasetState = DatasetState.SETTLED
    counts: dict[str, int] = field(default_factory=dict)  # rows, completed, failed, cancelled
    began_s: float = 0.0  # by the store's clock
