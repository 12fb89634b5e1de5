"""Schedules, and what is noted of runs and lanes from time to time for people."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from runtime.model.lane_state import LaneState
from runtime.model.run import NewRun
from runtime.model.schedule import PlaySchedule, SeenSchedule


class ScheduleStore(Protocol):
    async def see(self, schedules: Sequence[PlaySchedule]) -> list[SeenSchedule]:
        """How each stands; one that is new begins now."""
        ...

    async def begin(self, of: PlaySchedule, tick: datetime, run: NewRun) -> bool:
        """Take the tick and store its run, in one transaction; False if it or a later one was taken."""
        ...


class SampleStore(Protocol):
    async def sample_runs(self) -> int:
        """Note the counts of live runs, by turns if there are many, whose last sample is old enough; how many."""
        ...

    async def any_live(self) -> bool:
        """Whether a run that has begun goes on."""
        ...

    async def sample_lanes(self, lanes: Sequence[LaneState]) -> None:
        """Note lanes that changed since their last sample, busy ones now and then anyway; forget old ones."""
        ...
