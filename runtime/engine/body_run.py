"""`plays.resume`: claim a run for this session and drive its body; give it back if this process can't."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import structlog
from structlog.contextvars import bound_contextvars

from runtime import tracing
from runtime.engine.body_attempt import Attempt, BodyPorts, DriveEnd
from runtime.engine.defects import Defects
from runtime.engine.operations import Operations
from runtime.engine.outcomes import run_error
from runtime.engine.play_versions import PlayVersions
from runtime.engine.secret_values import SecretValues
from runtime.errors import (
    OwnershipLostError,
    PlaylaneError,
    PlayVersionUnavailableError,
    ServiceUnreachableError,
    UnknownPlayError,
    WorkerDiedError,
)
from runtime.model.budget import BUDGET_OPTION, NO_CAPS, Caps
from runtime.model.run import ClaimedRun, RunState
from runtime.play import PlayDefinition, PlayRegistry, plays
from runtime.policy import budgeting
from runtime.policy.limits import Limits
from runtime.policy.lineage import lineage_of
from runtime.policy.versions import VersionPolicy
from runtime.ports import BudgetStore, EventSink, Fault, LoopBridge, RunStore, no_events

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
        secrets: SecretValues | None = None,
        budgets: BudgetStore | None = None,
        version_policy: VersionPolicy = VersionPolicy.CONTINUE,
        events: EventSink = no_events,
    ) -> None:
        self._versions = PlayVersions(runs, limits, version_policy)
        self._defects = Defects(limits.run_crashes, limits.defect_works)
        self._session_id = session_id
        self._registry = registry
        self._budgets = budgets
        self._ports = BodyPorts(
            runs=runs,
            operations=operations,
            bridge=bridge,
            limits=limits,
            fault=fault,
            wall_ms=wall_ms,
            draining=draining,
            registry=registry,
            secrets=secrets,
            events=events,
        )

    def drive(self, run_id: str) -> DriveEnd:
        """Run the body of `run_id` as far as it goes; blocking, in a thread without a loop."""
        ports = self._ports
        run = ports.bridge.call(ports.runs.claim(run_id, self._session_id()), ports.limits.body_call_s)
        if run is None:
            return DriveEnd.NOT_MINE
        with bound_contextvars(run_id=run_id, play=run.play, attempt=run.attempt):
            return self._held(run)

    def _held(self, run: ClaimedRun) -> DriveEnd:
        told = {"playlane.play": run.play, "playlane.org_id": run.org_id, "playlane.attempt": run.attempt}
        try:
            with tracing.span("playlane.run", run.run_id, told) as span:
                end = self._drive(run)
                if span is not None:
                    span.set_attribute("playlane.end", end.value)
        except OwnershipLostError:
            end = DriveEnd.LOST
        except BaseException as error:
            if (last := self._defects.met(run.run_id, f'the body of play "{run.play}"', error)) is not None:
                log.exception("body ended: it meets the same defect each time", action="body.defect")
                return self._refuse(run, last)
            self._give_back(run)
            raise
        self._defects.passed(run.run_id)
        log.info("body left", action="body.left", end=end.value)
        return end

    def _drive(self, run: ClaimedRun) -> DriveEnd:
        if run.crashes >= self._ports.limits.run_crashes:
            return self._refuse(run, _died(run))
        try:
            play = self._registry.find(run.play)
            is_other = self._call(self._versions.pin(run, play))
        except (UnknownPlayError, PlayVersionUnavailableError) as error:
            given = self._call(self._versions.hand_back(run, error))
            return DriveEnd.HANDED_BACK if given else DriveEnd.ENDED
        ready = self._with_budget(run, play)
        return Attempt(ready, play, self._ports, self._versions, is_other_version=is_other).run()

    def _with_budget(self, run: ClaimedRun, play: PlayDefinition) -> ClaimedRun:
        """The run with its caps pinned, by its first body that has any."""
        caps = budgeting.effective(play.caps, Caps.of_options(run.options))
        callers = lineage_of(run.run_id, run.play, run.options).accounts
        if self._budgets is None or BUDGET_OPTION in run.options or not (caps != NO_CAPS or callers):
            return run
        work = self._budgets.open(run.run_id, caps, callers)
        accounts = self._ports.bridge.call(work, self._ports.limits.body_call_s)
        return replace(run, options=budgeting.pinned(run.options, accounts, caps))

    def _refuse(self, run: ClaimedRun, error: PlaylaneError) -> DriveEnd:
        ports = self._ports
        work = ports.runs.end(
            run.run_id, run.attempt, RunState.FAILED, result=None, error=run_error(error, "")
        )
        return DriveEnd.ENDED if ports.bridge.call(work, ports.limits.body_call_s) else DriveEnd.LOST

    def _call(self, work: Any) -> Any:
        return self._ports.bridge.call(work, self._ports.limits.body_call_s)

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
