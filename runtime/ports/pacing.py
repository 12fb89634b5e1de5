"""Moments to send."""

from collections.abc import Hashable
from math import inf
from typing import Protocol

from runtime.model.rate_scope import RateScope


class Ticket(Protocol):
    """A reserved moment to send; `free` gives its place back exactly once."""

    async def due(self, hold_ms: float = inf) -> float:
        """0 at the moment that was reserved; or how long it is till then, at once, if that is longer than `hold_ms`."""
        ...

    def spacing_ms(self, items: int) -> float:
        """How far apart requests of so many items go at the scope's rate; 0 if it has no rule."""
        ...

    async def later(self, items: int, due_ms: float) -> float:
        """For how long calls that are `due_ms` away should stay away (ms): each asker later than the one before."""
        ...

    async def confirm(self, most: int, *, whole: bool = False) -> tuple[int, float]:
        """When due: (items that may be sent now, 0), or (0, ms to wait): the ticket keeps its place.

        As many as were reserved and as the tokens allow, at most `most`; `whole`: all of them or none.
        """
        ...

    def sent(self) -> None:
        """The request leaves now: late ones count from here."""
        ...

    async def limited(self, retry_after_ms: float | None) -> None:
        """The provider refused with 429: with a wait the scope closes for all, without its rate halves."""
        ...

    async def succeeded(self) -> None:
        """The provider answered: a lowered rate recovers."""
        ...

    def free(self) -> None: ...


class Pacer(Protocol):
    async def reserve(self, scope: RateScope, items: int, turn: Hashable = "") -> Ticket:
        """A ticket of the scope. In one process those of different `turn` (a bucket) get theirs in turns."""
        ...
