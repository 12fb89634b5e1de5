"""One attempt of a run: its body, replayed from the journal and driven on until it ends or only waits."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn

import structlog

from runtime.context.play_context import PlayContext
from runtime.engine.body import Body
from runtime.engine.body_flights import Flights
from runtime.engine.body_journal import BodyJournal, Outcome
from runtime.engine.operations import Operations
from runtime.engine.outcomes import error_of, is_fatal, run_error
from runtime.engine.play_versions import PlayVersions
from runtime.engine.run_result import result_json
from runtime.engine.secret_values import SecretValues, body_secrets
from runtime.errors import (
    JsonValueError,
    NonDeterministicPlayError,
    PlaylaneError,
    PlayVersionUnavailableError,
    RunFatalError,
    SecretSilentError,
    SecretTaintError,
    SecretUnavailableError,
)
from runtime.known_secrets import known_secrets
from runtime.model.events import ChildPlaysEnded, Logged, RunStarted, RunSuspended
from runtime.model.operation import JournalEntry, Op, OpKind
from runtime.model.run import ClaimedRun, RunState
from runtime.play import PlayDefinition, PlayRegistry, plays
from runtime.policy.limits import Limits
from runtime.ports import EventSink, Fault, LogLine, LoopBridge, RunStore, no_events

log = structlog.get_logger()


class DriveEnd(StrEnum):
    NOT_MINE = "not_mine"  # ended, waiting without news, or held by a live body
    WAITING = "waiting"
    ENDED = "ended"
    LOST = "lost"  # another attempt or the run's end took it away
    HANDED_BACK = "handed_back"  # another worker has its play's version
    RELEASED = "released"  # given back unfinished: the process is stopping


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyPorts:
    """What every attempt of this process shares."""

    runs: RunStore
    operations: Operations
    bridge: LoopBridge
    limits: Limits
    fault: Fault
    wall_ms: Callable[[], int]
    draining: Callable[[], bool]
    registry: PlayRegistry = plays
    secrets: SecretValues | None = None
    events: EventSink = no_events


class Attempt:
    """Use once, in a thread without a loop: `run`. Raises OwnershipLostError and what the stores raise."""

    def __init__(
        self,
        run: ClaimedRun,
        play: PlayDefinition,
        ports: BodyPorts,
        versions: PlayVersions,
        *,
        is_other_version: bool = False,
    ) -> None:
        self._run = run
        self._ports = ports
        self._versions = versions
        self._is_other_version = is_other_version
        self._limits = ports.limits
        self._body = Body(
            play,
            run.input,
            make_ctx=PlayContext,
            limits=ports.limits,
            registry=ports.registry,
            captures=bool(run.options.get("capture")),
            secret_of=body_secrets(ports.secrets, ports.bridge, run.org_id, play.name, ports.limits),
        )
        self._flights = Flights()
        self._journal = BodyJournal(play.name, ports.limits, ports.wall_ms())
        self._wakes = 0
        self._polled_s = 0.0
        self._idle_since_s: float | None = None

    def run(self) -> DriveEnd:
        """Drive the body until the run ended, waits, is lost or is given back."""
        self._ports.events.emit(
            self._run.run_id, RunStarted(play=self._body.play.name, attempt=self._run.attempt)
        )
        try:
            self._replay()
            while not self._body.done:
                end = self._turn()
                if end is not None:
                    return end
            return self._end_done()
        except (PlayVersionUnavailableError, SecretSilentError) as error:
            return self._hand_back(error)
        except NonDeterministicPlayError as error:
            return self._hand_back(error) if self._is_other_version else self._end_failed(error)
        except (RunFatalError, SecretUnavailableError) as error:
            return self._end_failed(error)
        finally:
            self._drop()

    def _replay(self) -> None:
        self._body.start()
        for entry in self._call(self._ports.runs.journal(self._run.run_id)):
            self._journal.replayed(entry)
            self._deliver(self._whole(entry))

    def _whole(self, entry: JournalEntry) -> JournalEntry:
        if entry.kind != OpKind.READ or not self._body.asks(entry.op_key):
            return entry
        return self._call(self._ports.operations.whole(entry, self._body.op(entry.op_key)))

    def _turn(self) -> DriveEnd | None:
        self._give_up()
        for op in [*self._body.take_fresh(), *self._rested()]:
            flight = self._ports.operations.perform(self._run, self._body.play, op)
            self._flights.begin(op.key, self._ports.bridge.submit(flight))
        self._write_logs()
        self._body.check_alive()
        ready = self._landed_outcomes()
        ready.update(self._resolved_outcomes(ready))
        if ready:
            self._idle_since_s = None
            self._record(ready)
            return None
        return self._rest()

    # ---- operations

    def _rested(self) -> list[Op]:
        return [self._body.op(key) for key in self._flights.rested() if self._body.asks(key)]

    def _give_up(self) -> None:
        abandoned = self._body.take_abandoned()
        for op in abandoned:
            self._flights.end(op.key)
        if abandoned:
            self._call(self._give_up_all(abandoned))

    async def _give_up_all(self, abandoned: list[Op]) -> None:
        await asyncio.gather(*(self._ports.operations.give_up(self._run, op) for op in abandoned))

    def _landed_outcomes(self) -> dict[str, Outcome]:
        limits = self._limits
        timeout_s = limits.body_poll_s if self._body.has_waits() else limits.body_slow_poll_s
        ready: dict[str, Outcome] = {}
        for key, outcome in self._flights.landed(timeout_s):
            if self._body.asks(key):
                _refuse_version(outcome)
                ready[key] = outcome
        return ready

    def _resolved_outcomes(self, ready: dict[str, Outcome]) -> dict[str, Outcome]:
        """Boundaries that the store resolved; also learns that the attempt is lost."""
        if ready and time.monotonic() - self._polled_s < self._limits.body_poll_s:
            return {}
        poll = self._call(self._ports.runs.poll(self._run.run_id, self._run.attempt))
        self._wakes, self._polled_s = poll.wakes, time.monotonic()
        self._flights.hasten([key for key, _ in poll.resolved])
        return {
            key: _as_outcome(outcome)
            for key, outcome in poll.resolved
            if key not in ready and self._body.asks(key)
        }

    # ---- journal

    def _record(self, ready: dict[str, Outcome]) -> None:
        """Write the outcomes, then let the body meet them one at a time."""
        asked = {key: self._body.op(key) for key in ready}
        entries = self._journal.entries(ready, asked, self._ports.wall_ms())
        kept = [self._ports.operations.journal_form(entry, asked[entry.op_key]) for entry in entries]
        self._journal.count(kept)
        self._call(self._append(kept, [asked[entry.op_key] for entry in entries]))
        self._tell_children(entries)
        for entry in entries:
            self._flights.end(entry.op_key)
            self._deliver(entry)

    def _tell_children(self, entries: list[JournalEntry]) -> None:
        for entry in entries:
            if entry.kind == OpKind.CHILD:
                counts = entry.outcome.get("children") or {"ok": 0, "failed": 1}
                told = ChildPlaysEnded(ok=counts["ok"], failed=counts["failed"])
                self._ports.events.emit(self._run.run_id, told)

    async def _append(self, entries: list[JournalEntry], ops: list[Op]) -> None:
        await self._ports.fault("body.before_journal")
        await self._ports.runs.append_journal(self._run.run_id, self._run.attempt, entries)
        await self._ports.fault("body.after_journal")
        for entry, op in zip(entries, ops, strict=True):
            if "error" in entry.outcome:
                await self._ports.operations.give_up(self._run, op)

    def _deliver(self, entry: JournalEntry) -> None:
        self._body.deliver(entry)
        error = entry.outcome.get("error")
        if error is not None and is_fatal(error) and self._body.error() is None:
            self._raise_fatal(error)

    def _raise_fatal(self, payload: dict[str, Any]) -> NoReturn:
        """A run-fatal outcome ends the run even if the body caught it."""
        raise error_of(payload)

    def _write_logs(self) -> None:
        lines = [
            LogLine(scope="body", n=line.n, level=line.level, message=line.text, fields=line.fields)
            for line in self._body.take_logs()
        ]
        if not lines:
            return
        self._call(self._ports.runs.add_logs(self._run.run_id, lines))
        for line in lines[: self._limits.event_logs]:
            told = Logged(scope=line.scope, level=line.level, message=line.message, fields=dict(line.fields))
            self._ports.events.emit(self._run.run_id, told)

    # ---- rest and end

    def _rest(self) -> DriveEnd | None:
        """Nothing is ready: give the slot up if only waits are left, or if the process is stopping."""
        draining = self._ports.draining()
        if self._flights.any_due():
            return None
        if self._flights or not self._body.only_waits(self._flights.resting):
            self._idle_since_s = None
            return self._release() if draining else None
        now_s = time.monotonic()
        self._idle_since_s = self._idle_since_s or now_s
        if not draining and now_s - self._idle_since_s < self._limits.suspend_grace_s:
            return None
        if self._call(self._ports.runs.suspend(self._run.run_id, self._run.attempt, self._wakes)):
            self._ports.events.emit(self._run.run_id, RunSuspended(attempt=self._run.attempt))
            return DriveEnd.WAITING
        return None

    def _release(self) -> DriveEnd:
        self._call(self._ports.operations.settled())
        self._call(self._ports.runs.release(self._run.run_id, self._run.attempt))
        return DriveEnd.RELEASED

    def _hand_back(self, error: PlaylaneError) -> DriveEnd:
        self._flights.cancel_all()
        self._call(self._ports.operations.settled())
        given = self._call(self._versions.hand_back(self._run, error))
        return DriveEnd.HANDED_BACK if given else DriveEnd.ENDED

    def _end_failed(self, error: BaseException) -> DriveEnd:
        return self._end(RunState.FAILED, error=run_error(error, self._body.play.source_file))

    def _end_done(self) -> DriveEnd:
        forgotten, error = self._body.forgotten(), self._body.error()
        if forgotten:
            names = ", ".join(sorted(forgotten)[:10])
            self._body.log(
                f"the body ended with {len(forgotten)} task(s) still running; cancelled: {names}", {}
            )
        self._write_logs()
        if error is not None:
            return self._end_failed(error)
        name = f'what play "{self._body.play.name}" returned'
        try:
            returned = self._body.result()
            previews = self._call(self._ports.operations.previews(returned))
            result = result_json(returned, self._limits, previews)
            known_secrets.refuse_json(result, self._run.org_id, name)
        except JsonValueError as bad:
            return self._end_failed(JsonValueError(bad.path, f"{name} can't be kept: {bad.reason}"))
        except SecretTaintError as taint:
            return self._end_failed(taint)
        return self._end(RunState.COMPLETED, result=result)

    def _end(
        self, state: RunState, *, result: bytes | None = None, error: dict[str, Any] | None = None
    ) -> DriveEnd:
        self._write_logs()
        ended = self._call(
            self._ports.runs.end(self._run.run_id, self._run.attempt, state, result=result, error=error)
        )
        return DriveEnd.ENDED if ended else DriveEnd.LOST

    def _drop(self) -> None:
        self._flights.cancel_all()
        left = self._body.stop()
        if left:
            log.warning(
                "tasks of a body outlived their cancellation",
                action="body.zombies",
                run_id=self._run.run_id,
                play=self._body.play.name,
                tasks=left,
            )

    def _call(self, work: Any) -> Any:
        return self._ports.bridge.call(work, self._limits.body_call_s)


def _refuse_version(outcome: Outcome) -> None:
    """Another version of the play began this dataset: that is for another worker, not for the journal."""
    error = outcome.get("error")
    if isinstance(error, dict) and error.get("code") == PlayVersionUnavailableError.code:
        raise PlayVersionUnavailableError(str(error.get("message")))


def _as_outcome(outcome: Any) -> Outcome:
    known = isinstance(outcome, dict) and ("ok" in outcome or "error" in outcome)
    return outcome if known else {"ok": outcome}
