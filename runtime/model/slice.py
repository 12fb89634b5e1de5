"""A slice: consecutive rows of a page, one row task. Its claim is a session and a fence."""

from dataclasses import dataclass
from enum import StrEnum

from runtime.model.dataset import DatasetFacts
from runtime.model.row import InputRow, LaterRow
from runtime.model.transitions import terminal


class SliceState(StrEnum):
    OPEN = "open"  # some row of it is open
    DONE = "done"  # no row of it is open


SLICE_MOVES = {
    SliceState.OPEN: frozenset({SliceState.DONE}),
    SliceState.DONE: frozenset({SliceState.OPEN}),  # a woken row opens its slice again
}
ENDED_SLICES = terminal(SLICE_MOVES)


SUSPECTS_FROM = 1_000_000
"""Slice numbers from here on hold one row that may take its process down."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class SliceId:
    dataset_id: int
    page: int
    slice: int

    @property
    def is_suspect(self) -> bool:
        """Whether its row must run while no other suspect does."""
        return self.slice >= SUSPECTS_FROM


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceOfRun:
    """A slice and whose it is."""

    run_id: str
    id: SliceId


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenSlice:
    """A slice that this session holds; `rows` are its open rows in input order, `later` those too big to come along."""

    id: SliceId
    fence: int
    facts: DatasetFacts
    rows: tuple[InputRow, ...]
    later: tuple[LaterRow, ...] = ()
    taken_ms: int = 0  # when it was taken, by the store's clock
