"""A held slice in the row writer: what of it is not written yet, and how its last write ends it."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from runtime.model.row import FinishedRow, LaterRow
from runtime.model.slice import TakenSlice
from runtime.policy.limits import Limits
from runtime.ports import LogLine, SliceRows

RunLine = tuple[str, LogLine]
"""(run, line)"""
GoOn = Callable[[Sequence[LaterRow]], None]
"""Runs woken rows of a slice."""
_LINE_BYTES = 100  # of a log line beside its texts


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
    go_on: GoOn | None = None
    rows: list[FinishedRow] = field(default_factory=list)
    logs: list[RunLine] = field(default_factory=list)
    final: bool = False
    told: bool = True  # a write of it was answered since the last look
    asks: bool = False  # it goes into the next write without a row, to hear whether it should go on
    waits: bool = False  # some row of it was let wait
    in_hand: set[int] = field(init=False)  # positions of rows that its holder has, and so nobody wakes

    def __post_init__(self) -> None:
        self.in_hand = {row.position for row in (*self.taken.rows, *self.taken.later)}

    @property
    def has_news(self) -> bool:
        return bool(self.rows) or bool(self.logs) or self.final or self.asks

    @property
    def may_wake(self) -> bool:
        """Whether a row of it may wait, let wait here or by an earlier holder."""
        return self.go_on is not None and not self.final and (self.waits or self.taken.fence > 1)

    def let_wait(self, rows: Iterable[FinishedRow]) -> None:
        """These were written: those that wait are no longer in hand."""
        waiting = [row.position for row in rows if row.wait is not None]
        if waiting:
            self.waits = True
            self.in_hand.difference_update(waiting)

    def hear(self, open_rows: Iterable[LaterRow]) -> None:
        """Open rows that have waited: those that are not in hand were woken, and go on."""
        woken = [row for row in open_rows if row.position not in self.in_hand]
        if woken and self.may_wake and self.go_on is not None:
            self.in_hand.update(row.position for row in woken)
            self.go_on(woken)


def end_of(done: bool, waits: bool) -> str:
    """How a slice ends whose last row was written."""
    if not done:
        return SliceEnd.OPEN
    return SliceEnd.WAITS if waits else SliceEnd.DONE


def within(rows: list[FinishedRow], most_rows: int, most_bytes: int, *, alone: bool) -> int:
    """How many leading rows fit; at least one if nothing else is written, so that a large row goes alone."""
    size = 0
    for count, row in enumerate(rows[:most_rows]):
        size += row.size_bytes
        if size > most_bytes and (count or not alone):
            return count
    return min(len(rows), most_rows)


def next_parts(slices: Iterable[OpenSlice], limits: Limits) -> tuple[list[SliceRows], list[RunLine]]:
    """Taken out of the slices for one write: at most `writer_rows` rows, `writer_bytes` of them, `writer_lines` lines.

    A slice is final with its last row and line.
    """
    parts: list[SliceRows] = []
    logs: list[RunLine] = []
    rows_left, bytes_left = limits.writer_rows, limits.writer_bytes
    for opened in slices:
        if not opened.has_news or rows_left <= 0 or bytes_left <= 0:
            continue
        count = within(opened.rows, rows_left, bytes_left, alone=bytes_left == limits.writer_bytes)
        if opened.rows and not count:
            continue
        asks, opened.asks = opened.asks, False
        rows, opened.rows = opened.rows[:count], opened.rows[count:]
        lines_left = limits.writer_lines - len(logs)
        lines, opened.logs = opened.logs[:lines_left], opened.logs[lines_left:]
        rows_left -= len(rows)
        bytes_left -= bytes_of(rows)
        logs += lines
        held = opened.taken
        final = opened.final and not opened.rows and not opened.logs
        parts.append(
            SliceRows(
                id=held.id,
                fence=held.fence,
                facts=held.facts,
                rows=tuple(rows),
                final=final,
                asks_woken=asks and opened.may_wake,
            )
        )
    return parts, logs


def bytes_of(rows: Iterable[FinishedRow], logs: Iterable[RunLine] = ()) -> int:
    """What they take in the writer's buffer, about."""
    lines = sum(_line_bytes(line) for _, line in logs)
    return sum(row.size_bytes for row in rows) + lines


def _line_bytes(line: LogLine) -> int:
    texts = sum(len(value) for value in line.fields.values() if isinstance(value, str))
    return _LINE_BYTES + len(line.message) + texts
