"""A page: input rows seeded and settled together."""

from dataclasses import dataclass
from enum import StrEnum

from runtime.model.transitions import terminal


class PageState(StrEnum):
    SEEDED = "seeded"  # its rows are stored; not yet cut into slices
    OUT = "out"  # cut; its slices are published or due
    PARKED = "parked"  # none open, some rows wait for a sleep or an event
    SETTLED = "settled"  # no row is open or waiting


PAGE_MOVES = {
    PageState.SEEDED: frozenset({PageState.OUT}),
    PageState.OUT: frozenset({PageState.PARKED, PageState.SETTLED}),
    PageState.PARKED: frozenset({PageState.OUT, PageState.SETTLED}),
    PageState.SETTLED: frozenset[PageState](),
}
ENDED_PAGES = terminal(PAGE_MOVES)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageOut:
    """Slices of one page to publish as a chord whose body is `datasets.settle_page`."""

    run_id: str
    dataset_id: int
    page: int
    slices: tuple[int, ...]
