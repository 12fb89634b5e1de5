"""Durable waits that something outside ends: events, and waits that rows keep between their turns."""

from collections.abc import Sequence
from typing import Any, Protocol

from runtime.model.boundary import Awaited, BodyAt, BoundaryAt, Delivered, Event, KnownBoundary
from runtime.model.row_wait import NewBoundary


class WaitStore(Protocol):
    async def arm_event(self, at: BodyAt, wait: NewBoundary) -> None:
        """Create the body's event wait, unless it exists; a stored event that it hasn't seen ends it at once.

        Raises AttemptLostError.
        """
        ...

    async def row_boundaries(
        self, dataset_id: int, positions: Sequence[int]
    ) -> dict[tuple[int, str], KnownBoundary]:
        """All boundaries of rows by (position, key); those whose time is up are ended first."""
        ...

    async def find(self, at: BoundaryAt) -> KnownBoundary | None:
        """The boundary as it is now; ended first if its time is up."""
        ...

    async def prepare(self, at: BoundaryAt, event_key: str, prepared: dict[str, Any]) -> KnownBoundary:
        """Note, before it happens, that a wait is being armed outside; what is stored if it exists.

        Raises AttemptLostError or SliceLostError, like `adopt`, `armed` and `close`.
        """
        ...

    async def adopt(self, at: BoundaryAt, from_holder: int) -> bool:
        """Take over the arming that a lost holder began; False if another did."""
        ...

    async def armed(
        self, at: BoundaryAt, wait: NewBoundary, prepared: dict[str, Any] | None = None
    ) -> KnownBoundary:
        """What this holder was arming is armed; a stored event ends it at once."""
        ...

    async def close(self, at: BoundaryAt, outcome: dict[str, Any]) -> KnownBoundary:
        """End an open boundary as cancelled, or give one that timed out its outcome; one with an outcome stays."""
        ...

    async def store_event(self, event: Event) -> bool:
        """Keep an event that is delivered later; True if it is new."""
        ...

    async def deliver(self, event: Event) -> Delivered:
        """Once per event: end the armed waits of its org with its key, one of each body and row; wake them.

        An event belongs to runs that were there when it was stored; waits armed later meet it when they are armed.
        """
        ...

    async def undelivered(self) -> list[Event]:
        """Stored events that nobody has delivered for a while; bounded."""
        ...

    async def prune(self) -> int:
        """Forget events older than `event_keep_s`; bounded."""
        ...

    async def awaited(self, run_id: str) -> list[Awaited]:
        """What a run waits for now, soonest first; bounded."""
        ...
