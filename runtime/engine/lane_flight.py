"""One batch on its way: a ticket's place, what was sealed, and how far it got."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum, auto

from runtime.engine.lane_book import Item
from runtime.engine.lane_parts import LaneParts
from runtime.engine.lane_spec import BatchSpec
from runtime.model.lease import BatchRecord
from runtime.model.outcome import ItemOutcome
from runtime.ports import Ticket


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
    lane: str
    scope: str
    ticket: Ticket | None = None

    async def take(self, items: int) -> None:
        self.ticket = await self.parts.pacer.reserve(self.lane, self.scope, items)
        await self.ticket.due()

    def free(self) -> None:
        ticket, self.ticket = self.ticket, None
        if ticket is not None:
            ticket.free()


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
