"""A boundary: a durable wait of a run, resolved once."""

from enum import StrEnum

from runtime.model.transitions import terminal


class BoundaryState(StrEnum):
    ARMING = "arming"  # its outside effect may or may not have happened
    ARMED = "armed"
    RESOLVED = "resolved"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"


BOUNDARY_MOVES = {
    BoundaryState.ARMING: frozenset({BoundaryState.ARMED, BoundaryState.CANCELLED}),
    BoundaryState.ARMED: frozenset(
        {BoundaryState.RESOLVED, BoundaryState.TIMED_OUT, BoundaryState.CANCELLED}
    ),
    BoundaryState.RESOLVED: frozenset[BoundaryState](),
    BoundaryState.TIMED_OUT: frozenset[BoundaryState](),
    BoundaryState.CANCELLED: frozenset[BoundaryState](),
}
ENDED_BOUNDARIES = terminal(BOUNDARY_MOVES)
