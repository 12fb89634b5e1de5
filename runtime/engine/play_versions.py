"""Runs whose play this worker lacks, or has in another version: handed back for a while, then failed."""

import structlog

from runtime.engine.outcomes import run_error
from runtime.errors import PlaylaneError, PlayVersionUnavailableError, SecretUnavailableError
from runtime.model.run import ClaimedRun, RunState
from runtime.play import PlayDefinition
from runtime.policy import versions
from runtime.policy.limits import Limits
from runtime.policy.versions import VersionPolicy
from runtime.ports import LogLine, RunStore

log = structlog.get_logger()
SCOPE = "version"


class PlayVersions:
    """Pins the source that a run begins with, and gives back what can't go on here."""

    def __init__(
        self, runs: RunStore, limits: Limits, policy: VersionPolicy = VersionPolicy.CONTINUE
    ) -> None:
        self._runs = runs
        self._limits = limits
        self.policy = policy

    async def pin(self, run: ClaimedRun, play: PlayDefinition) -> bool:
        """Whether the run began with another source of its play; under `refuse` that raises."""
        pinned = await self._runs.pin(run.run_id, play.source_hash)
        if pinned == play.source_hash:
            return False
        if self.policy is VersionPolicy.REFUSE:
            raise PlayVersionUnavailableError(other_source(run.run_id, play.name))
        await self._say(run, f'attempt {run.attempt} goes on under another version of play "{play.name}"')
        return True

    async def hand_back(self, run: ClaimedRun, error: PlaylaneError) -> bool:
        """Leave the run to another worker, a little later each time; False: it has ended as failed."""
        waited_s = await self._runs.unavailable(run.run_id)
        delay_s = versions.retry_in_s(waited_s, self._limits)
        if delay_s is None:
            failure = run_error(self._gave_up(error), "")
            await self._runs.end(run.run_id, run.attempt, RunState.FAILED, result=None, error=failure)
            return False
        if waited_s < self._limits.release_delay_s:
            await self._say(
                run, f"{error}; it waits up to {self._limits.version_wait_s:.0f} s for a worker that can"
            )
        log.warning(
            "run handed back",
            action="version.hand_back",
            run_id=run.run_id,
            again_s=delay_s,
            reason=str(error),
        )
        await self._runs.release(run.run_id, run.attempt, delay_s)
        return True

    async def slice_delay_s(self, run_id: str, error: PlaylaneError) -> float | None:
        """When to send a slice again that no row can be run of here; None: its run has ended as failed."""
        delay_s = versions.retry_in_s(await self._runs.unavailable(run_id), self._limits)
        if delay_s is None:
            await self._runs.fail(run_id, self._gave_up(error).to_payload())
        return delay_s

    def _gave_up(self, error: PlaylaneError) -> PlaylaneError:
        kind = type(error) if isinstance(error, SecretUnavailableError) else PlayVersionUnavailableError
        return kind(
            f"{error}. No worker could go on for {self._limits.version_wait_s:.0f} s: the run has ended"
        )

    async def _say(self, run: ClaimedRun, text: str) -> None:
        line = LogLine(scope=SCOPE, n=run.attempt, level="warning", message=text, fields={})
        await self._runs.add_logs(run.run_id, [line])


def other_source(run_id: str, play: str) -> str:
    """The sentence of a refusal."""
    return (
        f'run {run_id} was begun with another version of play "{play}", and PLAYLANE_PLAY_VERSION_POLICY is refuse: '
        "deploy that version, or start a new run"
    )
