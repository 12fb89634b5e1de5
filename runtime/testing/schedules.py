"""Schedules in memory."""

from collections.abc import Sequence
from datetime import UTC, datetime

from runtime.model.run import NewRun
from runtime.model.schedule import PlaySchedule, SeenSchedule
from runtime.testing.runs import MemoryRuns
from runtime.testing.state import MemoryState


class MemorySchedules:
    def __init__(self, state: MemoryState) -> None:
        self._state = state
        self._runs = MemoryRuns(state)
        self._last: dict[PlaySchedule, datetime] = {}

    async def see(self, schedules: Sequence[PlaySchedule]) -> list[SeenSchedule]:
        now = datetime.fromtimestamp(self._state.clock(), UTC)
        return [SeenSchedule(of=of, last_tick=self._last.setdefault(of, now), now=now) for of in schedules]

    async def begin(self, of: PlaySchedule, tick: datetime, run: NewRun) -> bool:
        if self._last[of] >= tick:
            return False
        self._last[of] = tick
        await self._runs.insert(run)
        return True
