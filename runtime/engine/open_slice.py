"""A held slice in the row writer: what of it is not written yet, and how its last write ends it."""

import asyncio
from dataclasses import dataclass, field

from runtime.model.row import FinishedRow
from runtime.model.slice import TakenSlice
from runtime.ports import LogLine


class SliceEnd:
    """What a slice's last flush said."""

    DONE = "done"
    WAITS = "waits"  # done, but for rows that wait
    OPEN = "open"  # a row of it is open again: it was woken meanwhile
    ENDED = "ended"  # its run or dataset has ended


@dataclass(slots=True, eq=False)
class OpenSlice:
    """A held slice with rows that are not written yet."""

    taken: TakenSlice
    ended: asyncio.Future[str]
    rows: list[FinishedRow] = field(default_factory=list)
    logs: list[tuple[str, LogLine]] = field(default_factory=list)
    final: bool = False
    told: bool = True  # a write of it was answered since the last look
    asks: bool = False  # it goes into the next write without a row, to hear whether it should go on
    waits: bool = False  # some row of it was let wait

    @property
    def has_news(self) -> bool:
        return bool(self.rows) or self.final or self.asks


def end_of(done: bool, waits: bool) -> str:
    """How a slice ends whose last row was written."""
    if not done:
        return SliceEnd.OPEN
    return SliceEnd.WAITS if waits else SliceEnd.DONE


def within(rows: list[FinishedRow], most_rows: int, most_bytes: int) -> int:
    """How many leading rows fit; at least one, so that a large row is written alone."""
    size = 0
    for count, row in enumerate(rows[:most_rows]):
        size += row.size_bytes
        if size > most_bytes and count:
            return count
    return min(len(rows), most_rows)
