"""Starts the runs of plays that have a schedule; run by the sweeps of any number of processes."""

from collections.abc import Callable, Sequence

import structlog

from runtime.model.schedule import PlaySchedule
from runtime.play import PlayDefinition
from runtime.policy.scheduling import due_tick, run_of_tick
from runtime.ports import Publisher, ScheduleStore

log = structlog.get_logger()


class Scheduling:
    """A tick is taken in the database: its run starts once, whoever comes first."""

    def __init__(
        self,
        store: ScheduleStore,
        publisher: Publisher,
        *,
        org_id: str,
        plays: Callable[[], Sequence[PlayDefinition]],
    ) -> None:
        self._store = store
        self._publisher = publisher
        self._org_id = org_id
        self._plays = plays

    async def sweep(self) -> int:
        """Start what is due; how many runs."""
        schedules = [
            PlaySchedule(org_id=self._org_id, play=play.name, schedule=play.schedule)
            for play in self._plays()
            if play.schedule is not None
        ]
        started: list[str] = []
        for seen in await self._store.see(schedules) if schedules else ():
            tick = due_tick(seen)
            if tick is None:
                continue
            run = run_of_tick(seen.of, tick)
            if await self._store.begin(seen.of, tick, run):
                log.info("run scheduled", action="run.schedule", run_id=run.run_id, play=run.play)
                started.append(run.run_id)
        if started:
            await self._publisher.resume(started)
        return len(started)
