"""`plays.resume`: claim a run for this session and drive its body; give it back if this process can't."""

import time
from collections.abc import Callable

import structlog

from runtime.engine.body_attempt import Attempt, BodyPorts, DriveEnd
from runtime.engine.operations import Operations
from runtime.engine.outcomes import run_error
from runtime.errors import (
    OwnershipLostError,
    PlaylaneError,
    ServiceUnreachableError,
    UnknownPlayError,
    WorkerDiedError,
)
from runtime.model.run import ClaimedRun, RunState
from runtime.play import PlayRegistry, plays
from runtime.policy.limits import Limits
from runtime.ports import Fault, LoopBridge, RunStore

log = structlog.get_logger()


class BodyRunner:
    """Drives bodies in the threads of a play worker."""

    def __init__(
        self,
        *,
        runs: RunStore,
        operations: Operations,
        bridge: LoopBridge,
        limits: Limits,
        fault: Fault,
        session_id: Callable[[], str],
        registry: PlayRegistry = plays,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        draining: Callable[[], bool] = lambda: False,
    ) -> None:
        self._session_id = session_id
        self._registry = registry
        self._ports = BodyPorts(
            runs=runs,
            operations=operations,
            bridge=bridge,
            limits=limits,
            fault=fault,
            wall_ms=wall_ms,
            draining=draining,
        )

    def drive(self, run_id: str) -> DriveEnd:
        """Run the body of `run_id` as far as it goes; blocking, in a thread without a loop."""
        ports = self._ports
        run = ports.bridge.call(ports.runs.claim(run_id, self._session_id()), ports.limits.body_call_s)
        if run is None:
            return DriveEnd.NOT_MINE
        try:
            end = self._drive(run)
        except OwnershipLostError:
            end = DriveEnd.LOST
        except BaseException:
            self._give_back(run)
            raise
        log.info(
            "body left", action="body.left", run_id=run_id, play=run.play, attempt=run.attempt, end=end.value
        )
        return end

    def _drive(self, run: ClaimedRun) -> DriveEnd:
        if run.crashes >= self._ports.limits.run_crashes:
            return self._refuse(run, _died(run))
        try:
            play = self._registry.find(run.play)
        except UnknownPlayError as error:
            return self._refuse(run, error)
        return Attempt(run, play, self._ports).run()

    def _refuse(self, run: ClaimedRun, error: PlaylaneError) -> DriveEnd:
        ports = self._ports
        work = ports.runs.end(
            run.run_id, run.attempt, RunState.FAILED, result=None, error=run_error(error, "")
        )
        return DriveEnd.ENDED if ports.bridge.call(work, ports.limits.body_call_s) else DriveEnd.LOST

    def _give_back(self, run: ClaimedRun) -> None:
        """Release a run that this process could not drive; it tries as long as its session may live."""
        limits = self._ports.limits
        until_s = time.monotonic() + limits.release_retry_s
        while True:
            try:
                self._ports.bridge.call(self._ports.runs.release(run.run_id, run.attempt), limits.body_call_s)
            except OwnershipLostError:
                return
            except (ServiceUnreachableError, TimeoutError) as error:
                log.warning(
                    "run not given back yet", action="body.release", run_id=run.run_id, error=str(error)
                )
                if time.monotonic() >= until_s:
                    return
                time.sleep(limits.release_delay_s)
            else:
                return


def _died(run: ClaimedRun) -> WorkerDiedError:
    return WorkerDiedError(
        f'{run.crashes} worker processes died one after the other while they ran the body of play "{run.play}", '
        "without any progress: it is not run again. Look for what kills or blocks a process in the body "
        "(memory, native code, a loop that never ends), then start a new run"
    )
