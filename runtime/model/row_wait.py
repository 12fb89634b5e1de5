"""What a row waits for, and where it is when it goes on."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class WaitKind(StrEnum):
    LANE = "lane"  # its call's ticket is far away
    BUDGET = "budget"  # until the run's budget is raised or freed
    SLEEP = "sleep"
    EVENT = "event"

    @property
    def parks(self) -> bool:
        """Whether a page whose rows wait only for this leaves the window."""
        return self in (WaitKind.SLEEP, WaitKind.EVENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBoundary:
    """A durable wait to be armed under `key`: over in `due_ms`, or when an event with `event_key` comes.

    `timeout_outcome` is what an event wait ends with when its time is up.
    """

    key: str
    kind: WaitKind
    due_ms: float
    event_key: str | None = None
    timeout_outcome: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RowWait:
    """What a row waits for; `due_ms` from now at the latest, None = until it is woken.

    `boundaries` are armed with the wait, those that exist already are left as they are; the first of them to end wakes.
    """

    kind: WaitKind
    due_ms: float | None = None
    detail: str = ""
    boundaries: tuple[NewBoundary, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WokenPage:
    """A page with rows that go on: its slices are due again."""

    run_id: str
    dataset_id: int
    page: int
