"""What sweeps do for runs besides resuming them: deadlines, and samples for people."""

from collections.abc import Awaitable, Callable, Sequence

import structlog

from runtime.errors import RunDeadlineError
from runtime.model.lane_state import LaneState
from runtime.model.run import OverdueRun
from runtime.ports import RunStore, SampleStore

log = structlog.get_logger()


class RunUpkeep:
    """Each method is a sweep; how much it did is its answer."""

    def __init__(
        self,
        runs: RunStore,
        samples: SampleStore,
        lanes: Callable[[], Awaitable[Sequence[LaneState]]],
    ) -> None:
        self._runs = runs
        self._samples = samples
        self._lanes = lanes

    async def deadlines(self) -> int:
        """End runs whose active time is used up."""
        overdue = await self._runs.overdue()
        for run in overdue:
            log.warning(
                "run ended at its deadline", action="run.deadline", run_id=run.run_id, active_s=run.active_s
            )
            await self._runs.fail(run.run_id, _used_up(run).to_payload())
        return len(overdue)

    async def sample(self) -> int:
        """Note how live runs and the lanes stand."""
        await self._samples.sample_runs()
        if await self._samples.any_live():
            await self._samples.sample_lanes(await self._lanes())
        return 0  # no news


def _used_up(run: OverdueRun) -> RunDeadlineError:
    return RunDeadlineError(
        f"the run was active for {run.active_s:.0f} s, and its deadline_s is {run.deadline_s:g}: it ends here. "
        "What is done and paid is kept: rerun it with more time"
    )
