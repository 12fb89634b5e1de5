"""Every state machine: closed under its table, and illegal moves are errors."""

from enum import StrEnum
from typing import Any

import pytest

from runtime.errors import StateTransitionError
from runtime.model.boundary import BOUNDARY_MOVES, BoundaryState
from runtime.model.cell import CELL_MOVES, CellState
from runtime.model.dataset import DATASET_MOVES, DatasetState
from runtime.model.lease import LEASE_MOVES, LeaseState
from runtime.model.page import PAGE_MOVES, PageState
from runtime.model.receipt import RECEIPT_MOVES, ReceiptState
from runtime.model.row import ROW_MOVES, RowState
from runtime.model.run import ENDED_RUNS, RUN_MOVES, RunState
from runtime.model.slice import SLICE_MOVES, SliceState
from runtime.model.transitions import require

TABLES: list[tuple[type[StrEnum], Any]] = [
    (BoundaryState, BOUNDARY_MOVES),
    (CellState, CELL_MOVES),
    (DatasetState, DATASET_MOVES),
    (LeaseState, LEASE_MOVES),
    (PageState, PAGE_MOVES),
    (ReceiptState, RECEIPT_MOVES),
    (RowState, ROW_MOVES),
    (RunState, RUN_MOVES),
    (SliceState, SLICE_MOVES),
]


@pytest.mark.parametrize(("states", "moves"), TABLES, ids=lambda value: getattr(value, "__name__", ""))
def test_every_state_has_a_line_in_its_table(states: type[StrEnum], moves: dict[Any, frozenset[Any]]) -> None:
    assert set(moves) == set(states)
    assert all(follower in states for followers in moves.values() for follower in followers)


@pytest.mark.parametrize("ended", sorted(ENDED_RUNS))
@pytest.mark.parametrize("then", list(RunState))
def test_nothing_follows_an_ended_run(ended: RunState, then: RunState) -> None:
    with pytest.raises(StateTransitionError, match=f"{ended} cannot become {then}"):
        require(RUN_MOVES, ended, then)


def test_a_legal_move_is_returned() -> None:
    assert require(RUN_MOVES, RunState.QUEUED, RunState.RUNNING) is RunState.RUNNING
