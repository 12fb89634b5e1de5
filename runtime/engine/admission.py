"""Control's decisions about runs: admit, refuse, cancel. Each is one transaction, then a publish."""

from typing import Any

import structlog

from runtime.model.run import ENDED_RUNS, NewRun, RunState
from runtime.play import PlayRegistry
from runtime.policy.limits import Limits
from runtime.ports import Fault, Publisher, RunStore

log = structlog.get_logger()


class RunAdmission:
    """Admits runs once by `run_id`; senders may repeat."""

    def __init__(
        self, *, runs: RunStore, publisher: Publisher, plays: PlayRegistry, limits: Limits, fault: Fault
    ) -> None:
        self._runs = runs
        self._publisher = publisher
        self._fault = fault
        self.plays = plays
        self.limits = limits

    async def admit(self, run: NewRun) -> None:
        """Store the run if it is new and publish its resume; repeated messages are harmless."""
        new = await self._runs.insert(run)
        await self._fault("control.after_insert")
        log.info("run admitted", action="run.admit", run_id=run.run_id, play=run.play, new=new)
        await self._publisher.resume([run.run_id])

    async def refuse(self, run: NewRun, error: dict[str, Any]) -> None:
        """A new run ends as failed with the reason; one that its sender stored is judged by a play worker at once."""
        if not await self._runs.refuse(run, error):
            await self._publisher.resume([run.run_id])

    async def cancel(self, run_id: str) -> RunState | None:
        """End the run as cancelled if it hasn't ended."""
        state = await self._runs.cancel(run_id)
        log.info("cancel", action="run.cancel", run_id=run_id, state=state, ended=state in ENDED_RUNS)
        return state
