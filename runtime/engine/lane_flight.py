"""One batch on its way: a ticket's place, what was sealed, and how far it got."""

from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, auto
from math import inf
from typing import TypeVar

import structlog

from runtime.engine.lane_book import Item
from runtime.engine.lane_parts import LaneParts
from runtime.engine.lane_spec import BatchSpec, call_of
from runtime.errors import ServiceUnreachableError
from runtime.model.call import Call
from runtime.model.failure import Failure
from runtime.model.lease import BatchRecord
from runtime.model.outcome import ItemOutcome
from runtime.model.rate_scope import RateScope
from runtime.policy.identity import FIXTURE
from runtime.ports import Ticket

T = TypeVar("T")
log = structlog.get_logger()


class Stage(IntEnum):
    """How far a batch is; from SENT on it may have been paid."""

    TAKEN = auto()
    SEALED = auto()
    SENT = auto()
    ANSWERED = auto()
    COMMITTED = auto()


@dataclass(slots=True, eq=False)
class Slot:
    """A place to send from, taken and freed as the batch needs it."""

    parts: LaneParts
    scope: RateScope
    turn: Hashable = ""  # who takes turns with others of the scope
    ticket: Ticket | None = None

    @property
    def lane(self) -> str:
        return self.scope.lane

    def another(self) -> "Slot":
        """A place of its own under the same limits."""
        return Slot(self.parts, self.scope, self.turn)

    async def take(self, items: int, far: Callable[[float], Awaitable[None]] | None = None) -> None:
        """A confirmed ticket for exactly these items. `far` is told of waits (ms) that nobody should sit through."""
        far_ms = await self.line_up(items, self.parts.limits.hold_ms if far else inf)
        if far_ms and far is not None:
            await far(far_ms)
            await self._due()
        wait_ms = await self.confirmed(items)
        while wait_ms:
            if far is not None and wait_ms > self.parts.limits.hold_ms:
                await far(wait_ms)
            await self.parts.clock.sleep(wait_ms)
            wait_ms = await self.confirmed(items)

    async def line_up(self, items: int, hold_ms: float = inf) -> float:
        """0 when the ticket is due, or how far away it is (ms), if further than `hold_ms`.

        Raises ServiceUnreachableError at the bound.
        """
        self.ticket = await self.parts.pacer.reserve(self.scope, items, self.turn)
        return await self._due(hold_ms)

    def spacing_ms(self, items: int) -> float:
        """How far apart requests of so many items go at the scope's rate."""
        return self.ticket.spacing_ms(items) if self.ticket else 0.0

    async def later(self, items: int, due_ms: float) -> float:
        """How long (ms) calls of a ticket that is `due_ms` away should stay away."""
        ticket = self.ticket
        if ticket is None:
            return due_ms
        return await self._reaching(lambda: ticket.later(items, due_ms))

    async def confirmed(self, items: int) -> float:
        """0 when all of `items` may be sent now, else how long to wait in the ticket's place."""
        _granted, wait_ms = await self._confirm(items, whole=True)
        return wait_ms

    async def room(self, most: int) -> tuple[int, float]:
        """(items that may be sent now, 0), or (0, ms to wait in the ticket's place)."""
        return await self._confirm(most, whole=False)

    def sent(self) -> None:
        """The request leaves now."""
        if self.ticket is not None:
            self.ticket.sent()

    async def limited(self, retry_after_ms: float | None) -> None:
        """The provider refused with 429."""
        ticket = self.ticket
        if ticket is not None:
            await self._told(lambda: ticket.limited(retry_after_ms))

    async def succeeded(self) -> None:
        """The provider answered."""
        ticket = self.ticket
        if ticket is not None:
            await self._told(ticket.succeeded)

    def free(self) -> None:
        ticket, self.ticket = self.ticket, None
        if ticket is not None:
            ticket.free()

    async def _due(self, hold_ms: float = inf) -> float:
        ticket = self.ticket
        return 0.0 if ticket is None else await self._reaching(lambda: ticket.due(hold_ms))

    async def _confirm(self, most: int, *, whole: bool) -> tuple[int, float]:
        ticket = self.ticket
        if ticket is None:
            raise RuntimeError(f"a place of lane {self.lane} was asked to confirm without a ticket")
        return await self._reaching(lambda: ticket.confirm(most, whole=whole))

    async def _reaching(self, work: Callable[[], Awaitable[T]]) -> T:
        return await self.parts.until_reachable("lane.ticket", work, self.parts.limits.lane_wait_ms)

    async def _told(self, report: Callable[[], Awaitable[None]]) -> None:
        """A report that doesn't arrive costs pace, not correctness."""
        try:
            await report()
        except ServiceUnreachableError as error:
            log.warning("pacer not told", action="lane.ticket", lane=self.lane, error=str(error))


def rate_scope(lane: str, org_id: str, spec: BatchSpec, mode: str | None = None) -> RateScope:
    """Whose limits a batch of this spec falls under."""
    metadata = spec.metadata
    return RateScope(
        lane=lane,
        org_id=org_id,
        provider=metadata.provider,
        max_batch_size=spec.strategy.max_batch_size,
        rules=metadata.pacing,
        concurrency=metadata.concurrency,
        is_fixture=mode == FIXTURE,
    )


@dataclass(slots=True, eq=False)
class Flight:
    slot: Slot
    lane: str
    spec: BatchSpec
    items: list[Item]
    record: BatchRecord | None = None
    is_verbatim: bool = False  # adopted: never sent with other members than recorded
    stage: Stage = Stage.TAKEN
    outcomes: Sequence[ItemOutcome] = field(default_factory=tuple)
    credits: float | None = None
    exhausted: Failure | None = None  # what items of its reply said of the provider's quota
    sends: int = 0
    sent_ms: float | None = None  # when it left last

    @property
    def batch_id(self) -> str | None:
        return self.record.batch_id if self.record else None

    @property
    def calls(self) -> list[Call]:
        """What the request is made of: all recorded members where it is sent again, else the items."""
        if self.is_verbatim and self.record is not None:
            return [call_of(member) for member in self.record.members]
        return [item.call for item in self.items]

    def own(self, outcomes: Sequence[ItemOutcome]) -> tuple[ItemOutcome, ...]:
        """The items' outcomes among those of `calls`: a member whose lease is another's is another's to answer."""
        by_key = {call.key: outcome for call, outcome in zip(self.calls, outcomes, strict=True)}
        return tuple(by_key[item.call.key] for item in self.items)
