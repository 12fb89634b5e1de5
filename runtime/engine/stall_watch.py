"""A line a minute of a process whose rows make no progress: which phase holds the oldest row."""

import asyncio
from collections.abc import Iterator

import structlog

from runtime.engine.byte_room import ByteRoom
from runtime.engine.row_scope import RowScope
from runtime.engine.row_writer import RowWriter
from runtime.policy.stalling import Phase, PhaseLook, stall_of

log = structlog.get_logger()


class StallWatch:
    """Rows report to it when they begin and end; it looks every `every_s` while there are any."""

    def __init__(self, *, writer: RowWriter, room: ByteRoom, every_s: float) -> None:
        self._writer = writer
        self._room = room
        self._every_s = every_s
        self._rows: dict[int, tuple[RowScope, float]] = {}  # in the order in which they began
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    def begin(self, scope: RowScope) -> None:
        """A row begins its columns."""
        self._rows[id(scope)] = (scope, self._loop.time())
        if self._timer is None:
            self._timer = self._loop.call_later(self._every_s, self._look)

    def end(self, scope: RowScope) -> None:
        """Its columns are through."""
        self._rows.pop(id(scope), None)

    def _look(self) -> None:
        self._timer = None
        looks = list(self.looks())
        now_s = self._loop.time()
        stall = stall_of(looks, now_s=now_s, written_s=self._writer.written_s, every_s=self._every_s)
        if stall is not None:
            log.warning(
                "rows make no progress",
                action="rows.stalled",
                phase=stall.phase.value,
                oldest_s=stall.oldest_s,
                oldest=stall.what,
                last_written_s=stall.last_written_s,
                held=stall.counts,
            )
        if looks:
            self._timer = self._loop.call_later(self._every_s, self._look)

    def looks(self) -> Iterator[PhaseLook]:
        """What each phase holds now."""
        for phase, in_call in ((Phase.RESOLVER, False), (Phase.CALL, True)):
            rows = [(scope, since) for scope, since in self._rows.values() if scope.is_busy is in_call]
            if rows:
                scope, since_s = rows[0]
                what = f'row "{scope.row_key}", column "{scope.column}" of dataset "{scope.dataset}"'
                yield PhaseLook(phase=phase, count=len(rows), since_s=since_s, what=what)
        if self._writer.blocked:
            yield PhaseLook(
                phase=Phase.WRITER, count=self._writer.blocked, since_s=self._writer.blocked_since_s
            )
        if self._writer.buffered:
            yield PhaseLook(
                phase=Phase.COMMIT, count=self._writer.buffered, since_s=self._writer.buffered_since_s
            )
        if self._room.waiting():
            yield PhaseLook(
                phase=Phase.MEMORY, count=self._room.waiting(), since_s=self._room.waiting_since_s
            )
