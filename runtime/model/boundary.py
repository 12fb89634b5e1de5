"""A boundary: a durable wait of a run, resolved once."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

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


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyAt:
    """A boundary of a run's body; writes hold only under `attempt`."""

    run_id: str
    key: str
    attempt: int

    @property
    def holder(self) -> int:
        """Grows with every process that takes it over."""
        return self.attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class RowAt:
    """A boundary of a row; writes hold only under the fence of its slice."""

    dataset_id: int
    page: int
    slice: int
    position: int
    key: str
    fence: int

    @property
    def holder(self) -> int:
        """Grows with every process that takes it over."""
        return self.fence


BoundaryAt = BodyAt | RowAt


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBoundary:
    """A boundary as it is stored. `outcome` is set once it has ended; `holder`: who was arming it last."""

    state: BoundaryState
    kind: str
    due_ms: float | None = None  # from now
    outcome: dict[str, Any] | None = None
    event_key: str | None = None
    prepared: dict[str, Any] | None = None  # what the tool said of its event wait
    holder: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What somebody tells runs of an org; `event_id` makes it one event however often it is told."""

    org_id: str
    event_id: str
    key: str
    payload: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """What an event has woken: bodies, rows, and those runs of the bodies that nobody holds."""

    bodies: int = 0
    rows: int = 0
    run_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Awaited:
    """What a run waits for, for people: its body's waits one by one, those of rows counted by kind and column.

    `due_at` is the soonest end, `since` the earliest begin among them.
    """

    where: str  # "body", or the dataset's key
    kind: str
    name: str
    count: int
    due_at: str | None
    since: str | None = None
