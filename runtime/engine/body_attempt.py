"""One attempt of a run: its body, replayed from the journal and driven on until it ends or only waits."""

import asyncio
import queue
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn

import structlog

from runtime.context.play_context import PlayContext
from runtime.engine.body import Body
from runtime.engine.operations import Operations
from runtime.engine.outcomes import error_of, is_fatal, run_error
from runtime.engine.run_result import result_json
from runtime.errors import JournalLimitError, JsonValueError, RunFatalError
from runtime.model import json_value
from runtime.model.operation import JournalEntry, Op, Resting
from runtime.model.run import ClaimedRun, RunState
from runtime.play import PlayDefinition
from runtime.policy.limits import Limits
from runtime.ports import Fault, LogLine, LoopBridge, RunStore

log = structlog.get_logger()

Outcome = dict[str, Any]
Performed = Outcome | Resting | None


class DriveEnd(StrEnum):
    NOT_MINE = "not_mine"  # ended, waiting without news, or held by a live body
    WAITING = "waiting"
    ENDED = "ended"
    LOST = "lost"  # another attempt or the run's end took it away
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


class Attempt:
    """Use once, in a thread without a loop: `run`. Raises OwnershipLostError and what the stores raise."""

    def __init__(self, run: ClaimedRun, play: PlayDefinition, ports: BodyPorts) -> None:
        self._run = run
        self._ports = ports
        self._limits = ports.limits
        self._body = Body(play, run.input, make_ctx=PlayContext, limits=ports.limits)
        self._flights: dict[str, Future[Performed]] = {}
        self._landed: queue.SimpleQueue[tuple[str, Future[Performed]]] = queue.SimpleQueue()
        self._resting: dict[str, float] = {}  # operation -> when to perform it again
        self._seq = 0
        self._journal_bytes = 0
        self._at_ms = 0
        self._started_ms = ports.wall_ms()
        self._wakes = 0
        self._polled_s = 0.0
        self._idle_since_s: float | None = None

    def run(self) -> DriveEnd:
        """Drive the body until the run ended, waits, is lost or is given back."""
        try:
            self._replay()
            while not self._body.done:
                end = self._turn()
                if end is not None:
                    return end
            return self._end_done()
        except RunFatalError as error:
            return self._end(RunState.FAILED, error=run_error(error, self._body.play.source_file))
        finally:
            self._drop()

    def _replay(self) -> None:
        self._body.start()
        for entry in self._call(self._ports.runs.journal(self._run.run_id)):
            if entry.seq == 0:
                self._started_ms = entry.outcome.get("started_ms", self._started_ms)
            self._seq = entry.seq + 1
            self._at_ms = max(self._at_ms, entry.outcome.get("at_ms", 0))
            self._journal_bytes += len(json_value.dumps(entry.outcome))
            self._deliver(entry)

    def _turn(self) -> DriveEnd | None:
        self._give_up()
        for op in [*self._body.take_fresh(), *self._rested()]:
            self._begin(op)
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

    def _begin(self, op: Op) -> None:
        flight = self._ports.bridge.submit(self._ports.operations.perform(self._run, self._body.play, op))
        self._flights[op.key] = flight
        flight.add_done_callback(lambda landed, key=op.key: self._landed.put((key, landed)))

    def _rested(self) -> list[Op]:
        now_s = time.monotonic()
        due = [key for key, due_s in self._resting.items() if due_s <= now_s]
        for key in due:
            del self._resting[key]
        return [self._body.op(key) for key in due if self._body.asks(key)]

    def _give_up(self) -> None:
        abandoned = self._body.take_abandoned()
        for op in abandoned:
            self._resting.pop(op.key, None)
            flight = self._flights.pop(op.key, None)
            if flight is not None:
                flight.cancel()
        if abandoned:
            self._call(self._give_up_all(abandoned))

    async def _give_up_all(self, abandoned: list[Op]) -> None:
        await asyncio.gather(*(self._ports.operations.give_up(self._run, op) for op in abandoned))

    def _landed_outcomes(self) -> dict[str, Outcome]:
        ready: dict[str, Outcome] = {}
        for key, flight in self._wait_landed():
            self._flights.pop(key, None)
            if flight.cancelled():
                continue
            outcome = flight.result()
            if isinstance(outcome, Resting):
                self._resting[key] = time.monotonic() + outcome.due_ms / 1000
            elif outcome is not None and self._body.asks(key):
                ready[key] = outcome
        return ready

    def _wait_landed(self) -> Iterable[tuple[str, "Future[Performed]"]]:
        has_waits = self._body.has_waits()
        try:
            yield self._landed.get(
                timeout=self._limits.body_poll_s if has_waits else self._limits.body_slow_poll_s
            )
            while True:
                yield self._landed.get_nowait()
        except queue.Empty:
            return

    def _resolved_outcomes(self, ready: dict[str, Outcome]) -> dict[str, Outcome]:
        """Boundaries that the store resolved; also learns that the attempt is lost."""
        if ready and time.monotonic() - self._polled_s < self._limits.body_poll_s:
            return {}
        poll = self._call(self._ports.runs.poll(self._run.run_id, self._run.attempt))
        self._wakes, self._polled_s = poll.wakes, time.monotonic()
        return {
            key: _as_outcome(outcome)
            for key, outcome in poll.resolved
            if key not in ready and self._body.asks(key)
        }

    # ---- journal

    def _record(self, ready: dict[str, Outcome]) -> None:
        """Write the outcomes, then let the body meet them one at a time."""
        self._at_ms = max(self._at_ms, self._ports.wall_ms() - self._started_ms)
        asked = {key: self._body.op(key) for key in ready}
        entries = [
            self._entry(seq, asked[key], outcome)
            for seq, (key, outcome) in enumerate(ready.items(), self._seq)
        ]
        self._journal_bytes += sum(len(json_value.dumps(entry.outcome)) for entry in entries)
        self._seq += len(entries)
        self._check_journal()
        self._call(self._append(entries, [asked[entry.op_key] for entry in entries]))
        for entry in entries:
            self._flights_end(entry.op_key)
            self._deliver(entry)

    def _entry(self, seq: int, op: Op, outcome: Outcome) -> JournalEntry:
        timed = {**outcome, "at_ms": self._at_ms}
        if seq == 0:
            timed["started_ms"] = self._started_ms
        return JournalEntry(seq=seq, op_key=op.key, kind=op.kind.value, digest=op.digest, outcome=timed)

    async def _append(self, entries: list[JournalEntry], ops: list[Op]) -> None:
        await self._ports.fault("body.before_journal")
        await self._ports.runs.append_journal(self._run.run_id, self._run.attempt, entries)
        await self._ports.fault("body.after_journal")
        for entry, op in zip(entries, ops, strict=True):
            if "error" in entry.outcome:
                await self._ports.operations.give_up(self._run, op)

    def _check_journal(self) -> None:
        limits = self._limits
        if self._seq <= limits.journal_entries and self._journal_bytes <= limits.journal_bytes:
            return
        raise JournalLimitError(
            f'play "{self._body.play.name}": its body did {self._seq:,} operations whose outcomes hold '
            f"{self._journal_bytes:,} bytes; a run keeps {limits.journal_entries:,} and "
            f"{limits.journal_bytes:,} bytes. Do the work per row, in a dataset's columns"
        )

    def _flights_end(self, key: str) -> None:
        flight = self._flights.pop(key, None)
        if flight is not None:
            flight.cancel()

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
            LogLine(scope="body", n=line.n, level="info", message=line.text, fields=line.fields)
            for line in self._body.take_logs()
        ]
        if lines:
            self._call(self._ports.runs.add_logs(self._run.run_id, lines))

    # ---- rest and end

    def _rest(self) -> DriveEnd | None:
        """Nothing is ready: give the slot up if only waits are left, or if the process is stopping."""
        draining = self._ports.draining()
        if self._flights or not self._body.only_waits(self._resting):
            self._idle_since_s = None
            return self._release() if draining else None
        now_s = time.monotonic()
        self._idle_since_s = self._idle_since_s or now_s
        if not draining and now_s - self._idle_since_s < self._limits.suspend_grace_s:
            return None
        if self._call(self._ports.runs.suspend(self._run.run_id, self._run.attempt, self._wakes)):
            return DriveEnd.WAITING
        return None

    def _release(self) -> DriveEnd:
        self._call(self._ports.runs.release(self._run.run_id, self._run.attempt))
        return DriveEnd.RELEASED

    def _end_done(self) -> DriveEnd:
        forgotten, error = self._body.forgotten(), self._body.error()
        if forgotten:
            names = ", ".join(sorted(forgotten)[:10])
            self._body.log(
                f"the body ended with {len(forgotten)} task(s) still running; cancelled: {names}", {}
            )
        self._write_logs()
        if error is not None:
            return self._end(RunState.FAILED, error=run_error(error, self._body.play.source_file))
        try:
            result = result_json(self._body.result(), self._limits)
        except JsonValueError as bad:
            reason = JsonValueError(
                bad.path, f'what play "{self._body.play.name}" returned can\'t be kept: {bad.reason}'
            )
            return self._end(RunState.FAILED, error=run_error(reason, self._body.play.source_file))
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
        for flight in self._flights.values():
            flight.cancel()
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


def _as_outcome(outcome: Any) -> Outcome:
    known = isinstance(outcome, dict) and ("ok" in outcome or "error" in outcome)
    return outcome if known else {"ok": outcome}
