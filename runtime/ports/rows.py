"""Slices of rows and what is written of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from runtime.model.call import Usage
from runtime.model.cell import StoredCells
from runtime.model.dataset import DatasetFacts
from runtime.model.row import FinishedRow, InputRow, LaterRow
from runtime.model.slice import SliceId, SliceOfRun, TakenSlice
from runtime.ports.runs import LogLine


class SliceStore(Protocol):
    async def take(self, run_id: str, slice_id: SliceId, session_id: str) -> TakenSlice | None:
        """Claim an open slice that no live session holds (dataset open, page claimed, run live): fence + 1.

        If its last holder never came back its open rows count a crash. At `suspect_crashes` the slice is split into
        suspects, one row each, and comes back without rows: finish and settle it to send them.
        Rows beyond `slice_read_bytes` come as `later`, without their input.
        """
        ...

    async def read_rows(self, taken: TakenSlice, positions: Sequence[int]) -> tuple[InputRow, ...]:
        """Those of a taken slice's open rows, with their input."""
        ...

    async def stored_rows(self, facts: DatasetFacts, row_keys: Sequence[str]) -> dict[str, StoredCells]:
        """What the dataset's sheet has of these rows, by key: those that a run brought to an end."""
        ...

    async def flush(self, write: "RowWrite") -> "RowWriteAnswer":
        """One transaction: rows (fenced by their slices), sheet rows, counters, usage, and slices that are done.

        A waiting row has no values yet; its wait is stored. A slice of an ended dataset or run is closed at once.
        A failed row of a dataset with on_row_error "fail" marks the dataset failing.
        """
        ...

    async def release(self, held: Sequence[tuple[SliceId, int]], after_s: float = 0.0) -> None:
        """Give slices back unfinished (id, fence): due to be sent again at once, or not before `after_s`."""
        ...


class WaitingSlices(Protocol):
    async def waiting_slices(self, datasets: int) -> Sequence[SliceOfRun]:
        """Of each of so many open datasets a slice that was sent and that nobody took, the longest sent first."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRows:
    """Finished rows of one held slice; `final`: nothing more comes, finish the slice if no row is open.

    `asks_woken`: tell which of its open rows have waited.
    """

    id: SliceId
    fence: int
    facts: DatasetFacts
    rows: tuple[FinishedRow, ...]
    final: bool
    asks_woken: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RowWrite:
    session_id: str
    slices: tuple[SliceRows, ...]
    usage: tuple[Usage, ...] = ()
    logs: tuple[tuple[str, LogLine], ...] = ()  # (run_id, line)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowWriteAnswer:
    """`done`: slices now done; `lost`: slices with a newer fence; `ended`: those of ended runs or datasets.

    `failing`: datasets in which a row failed under fail-fast; their rows make no further call.
    `woken`: open rows that have waited, of held slices that asked; their holder may be running some of them.
    """

    done: frozenset[SliceId]
    lost: frozenset[SliceId]
    ended: frozenset[SliceId]
    failing: frozenset[int] = frozenset()
    woken: Mapping[SliceId, tuple[LaterRow, ...]] = field(default_factory=dict[SliceId, tuple[LaterRow, ...]])
