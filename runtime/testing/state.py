"""The tables of the stores in memory, and what several stores decide alike."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from runtime.errors import AttemptLostError
from runtime.model.boundary import ENDED_BOUNDARIES, BoundaryState, Event
from runtime.model.call import Usage
from runtime.model.dataset import ENDED_DATASETS, OPEN_DATASETS, DatasetFacts, DatasetState, NewDataset
from runtime.model.operation import JournalEntry, completed
from runtime.model.page import PageState
from runtime.model.receipt import Receipt
from runtime.model.row import OPEN_ROWS, RowState
from runtime.model.row_wait import RowWait
from runtime.model.run import ENDED_RUNS, NewRun, RunState
from runtime.model.slice import SliceState
from runtime.policy.limits import Limits
from runtime.ports import LogLine


@dataclass(slots=True, kw_only=True)
class MemorySession:
    ttl_s: float
    expires_s: float
    ended: bool = False
    closed: bool = False  # it ended itself


@dataclass(slots=True, kw_only=True)
class MemoryRun:
    new: NewRun
    number: int
    state: RunState
    hinted_s: float | None
    attempt: int = 0
    session_id: str | None = None
    wakes: int = 0
    wakes_seen: int = 0
    result: Any = None
    error: dict[str, Any] | None = None
    epoch_ms: int = 0
    crashes: int = 0
    crash_progress: int = 0
    source_hash: str | None = None
    active_s: float = 0.0
    looked_s: float | None = None
    unavailable_since_s: float | None = None
    unavailable_s: float = 0.0
    unavailable_progress: int = 0


@dataclass(slots=True, kw_only=True)
class MemoryBoundary:
    kind: str
    state: BoundaryState = BoundaryState.ARMED
    due_s: float | None = None
    outcome: Any = None
    event_key: str | None = None
    event_id: str | None = None
    timeout_outcome: dict[str, Any] | None = None
    prepared: dict[str, Any] | None = None
    holder: int = 0


@dataclass(slots=True, kw_only=True)
class MemoryEvent:
    event: Event
    at_s: float
    is_delivered: bool = False


@dataclass(slots=True, kw_only=True)
class MemoryRow:
    page: int
    row_key: str
    input: Any
    state: RowState = RowState.PENDING
    superseded: bool = False
    kept: bool = False  # a rerun left it as it stood
    error: Any = None
    crashes: int = 0
    wait: RowWait | None = None
    due_s: float | None = None
    has_waited: bool = False
    boundaries: dict[str, MemoryBoundary] = field(default_factory=dict)

    def end_waits(self) -> None:
        """It has ended: what it still waited for is cancelled."""
        for one in self.boundaries.values():
            if one.state not in ENDED_BOUNDARIES:
                one.state = BoundaryState.CANCELLED


@dataclass(slots=True, kw_only=True)
class MemoryPage:
    first: int
    end: int
    state: PageState = PageState.SEEDED


@dataclass(slots=True, kw_only=True)
class MemorySlice:
    first: int
    end: int
    state: SliceState = SliceState.OPEN
    session_id: str | None = None
    fence: int = 0
    taken_s: float | None = None
    sent_s: float | None = None
    epoch: str | None = None
    order: int = 0  # of the last take or send, so that equal clock readings still have an order
    sent_order: int = -1


@dataclass(slots=True, kw_only=True)
class MemoryDataset:
    new: NewDataset
    op_key: str
    created_s: float = 0.0
    state: DatasetState = DatasetState.SEEDING
    pages_total: int | None = None
    next_position: int = 0
    duplicates: int = 0
    kept: int = 0
    left_out: int = 0
    input_digest: str = ""
    next_page: int = 0
    rows: dict[int, MemoryRow] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    pages: dict[int, MemoryPage] = field(default_factory=dict)
    slices: dict[tuple[int, int], MemorySlice] = field(default_factory=dict)

    @property
    def settled(self) -> int:
        return sum(page.state is PageState.SETTLED for page in self.pages.values())

    @property
    def unclaimed(self) -> int:
        return len(self.pages) - self.next_page

    @property
    def parked(self) -> int:
        return sum(page.state is PageState.PARKED for page in self.pages.values())

    @property
    def can_end(self) -> bool:
        if self.state is DatasetState.FAILING:
            return self.settled == len(self.pages)
        return self.state is DatasetState.RUNNING and self.settled == self.pages_total

    def fail(self) -> None:
        """A row failed under fail-fast."""
        if self.state in (DatasetState.SEEDING, DatasetState.RUNNING):
            self.state = DatasetState.FAILING

    def count(self, state: RowState) -> int:
        return sum(row.state is state for row in self.rows.values())

    def rows_of(self, part: MemorySlice | MemoryPage) -> Iterator[tuple[int, MemoryRow]]:
        return ((at, self.rows[at]) for at in range(part.first, part.end) if at in self.rows)

    def has_open_row(self, part: MemorySlice) -> bool:
        return any(row.state in OPEN_ROWS for _, row in self.rows_of(part))

    def waits(self, part: MemorySlice | MemoryPage) -> list[RowWait]:
        return [row.wait for _, row in self.rows_of(part) if row.wait is not None]

    def open_slices(self, page: int) -> list[MemorySlice]:
        return [one for (of, _), one in self.slices.items() if of == page and one.state is SliceState.OPEN]


class MemoryState:
    """All tables; `clock` gives seconds."""

    def __init__(self, clock: Callable[[], float], limits: Limits) -> None:
        self.clock = clock
        self.limits = limits
        self.started_s = clock()
        self.sessions: dict[str, MemorySession] = {}
        self.runs: dict[str, MemoryRun] = {}
        self.journal: dict[str, list[tuple[int, JournalEntry]]] = {}
        self.boundaries: dict[str, dict[str, MemoryBoundary]] = {}
        self.events: dict[tuple[str, str], MemoryEvent] = {}
        self.datasets: dict[int, MemoryDataset] = {}
        self.sheets: dict[tuple[str, str, str], dict[str, dict[str, Any]]] = {}
        self.receipts: dict[str, Receipt] = {}
        self.usage: list[Usage] = []
        self.logs: dict[tuple[str, str, int], LogLine] = {}

    def is_live(self, session_id: str | None) -> bool:
        session = self.sessions.get(session_id or "")
        return session is not None and not session.ended

    def never_came_back(self, session_id: str | None) -> bool:
        session = self.sessions.get(session_id or "")
        return session is not None and session.ended and not session.closed

    def held(self, run_id: str, attempt: int) -> MemoryRun:
        run = self.runs.get(run_id)
        if run is None or run.attempt != attempt or run.state is not RunState.RUNNING:
            raise AttemptLostError(f"attempt {attempt} no longer holds run {run_id}: stop quietly")
        return run

    def facts(self, dataset_id: int) -> DatasetFacts:
        dataset = self.datasets[dataset_id]
        run = self.runs[dataset.new.run_id]
        return DatasetFacts(
            dataset_id=dataset_id,
            run_id=run.new.run_id,
            org_id=run.new.org_id,
            play=run.new.play,
            key=dataset.new.key,
            namespace=dataset.new.namespace,
            columns=dataset.new.columns,
            source_hash=dataset.new.source_hash,
            on_row_error=dataset.new.on_row_error,
            options=run.new.options,
            write_version=run.number,
            epoch_ms=run.epoch_ms,
        )

    def is_over(self, dataset: MemoryDataset) -> bool:
        return dataset.state in ENDED_DATASETS or self.runs[dataset.new.run_id].state in ENDED_RUNS

    def is_winding(self, dataset: MemoryDataset) -> bool:
        return self.is_over(dataset) or dataset.state is DatasetState.FAILING

    def resolve(self, run_id: str, op_key: str, outcome: Any) -> None:
        boundary = self.boundaries.get(run_id, {}).get(op_key)
        if boundary is not None and boundary.state not in ENDED_BOUNDARIES:
            boundary.state, boundary.outcome = BoundaryState.RESOLVED, outcome
            self.runs[run_id].wakes += 1

    def resolve_due(self, run_id: str) -> None:
        now = self.clock()
        for op_key, boundary in self.boundaries.get(run_id, {}).items():
            if boundary.kind == "event":
                self.runs[run_id].wakes += self.end_if_due(boundary)
            elif (
                boundary.state is BoundaryState.ARMED and boundary.due_s is not None and boundary.due_s <= now
            ):
                self.resolve(run_id, op_key, completed(None, at_ms=int(now * 1000)))

    def end_if_due(self, boundary: MemoryBoundary) -> bool:
        """End an event wait or a row's sleep whose time is up."""
        due_s = boundary.due_s
        if boundary.state is not BoundaryState.ARMED or due_s is None or due_s > self.clock():
            return False
        if boundary.kind == "event":
            boundary.state, boundary.outcome = BoundaryState.TIMED_OUT, boundary.timeout_outcome
        else:
            boundary.state, boundary.outcome = BoundaryState.RESOLVED, {"ok": None}
        return True

    def wind(self, dataset: MemoryDataset, number: int) -> bool:
        """Cancel what no live session holds in a page of an ended dataset."""
        page = dataset.pages[number]
        for one in dataset.open_slices(number):
            if not self.is_live(one.session_id):
                one.state, one.session_id = SliceState.DONE, None
        claimed = {at for one in dataset.open_slices(number) for at in range(one.first, one.end)}
        for at, row in dataset.rows_of(page):
            if at not in claimed and (row.state in OPEN_ROWS or row.state is RowState.WAITING):
                row.state, row.wait, row.due_s = RowState.CANCELLED, None, None
                row.end_waits()
        if page.state is PageState.SETTLED or claimed:
            return False
        page.state = PageState.SETTLED
        return True

    def end_datasets(self, run_id: str, op_key: str | None = None) -> None:
        for dataset in self.datasets.values():
            named = op_key is None or dataset.op_key == op_key
            if dataset.new.run_id == run_id and named and dataset.state in OPEN_DATASETS:
                dataset.state = DatasetState.CANCELLED
                for number in dataset.pages:
                    self.wind(dataset, number)
        for key, boundary in self.boundaries.get(run_id, {}).items():
            if (op_key is None or key == op_key) and boundary.state not in ENDED_BOUNDARIES:
                boundary.state = BoundaryState.CANCELLED


def is_resumable(state: MemoryState, run: MemoryRun) -> bool:
    """Whether a body may claim the run now."""
    if run.state is RunState.WAITING:
        return run.wakes > run.wakes_seen
    return run.state is RunState.QUEUED or (
        run.state is RunState.RUNNING and not state.is_live(run.session_id)
    )
