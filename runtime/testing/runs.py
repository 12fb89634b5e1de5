"""Sessions, runs, journals and waits in memory."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from runtime.errors import AttemptLostError
from runtime.model import json_value
from runtime.model.boundary import BoundaryState
from runtime.model.operation import JournalEntry
from runtime.model.row import ENDED_ROWS
from runtime.model.run import ENDED_RUNS, ClaimedRun, NewRun, OverdueRun, RunFacts, RunPoll, RunState
from runtime.ports import LogLine
from runtime.testing.state import MemoryBoundary, MemoryRun, MemorySession, MemoryState, is_resumable


class MemorySessions:
    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def open(self, session_id: str, *, role: str, hostname: str, pid: int, ttl_s: float) -> None:
        expires_s = self._state.clock() + ttl_s
        self._state.sessions.setdefault(session_id, MemorySession(ttl_s=ttl_s, expires_s=expires_s))

    async def renew(self, session_id: str, ttl_s: float) -> bool:
        if not self._state.is_live(session_id):
            return False
        session = self._state.sessions[session_id]
        session.ttl_s, session.expires_s = ttl_s, self._state.clock() + ttl_s
        return True

    async def close(self, session_id: str) -> None:
        if session_id in self._state.sessions:
            session = self._state.sessions[session_id]
            session.closed = session.closed or not session.ended
            session.ended = True

    async def end_expired(self) -> list[str]:
        now = self._state.clock()
        ended = [
            session_id
            for session_id, one in self._state.sessions.items()
            if not one.ended and one.expires_s < now and self._state.started_s < now - one.ttl_s
        ]
        for session_id in ended:
            self._state.sessions[session_id].ended = True
        return ended

    async def live(self, session_ids: Sequence[str]) -> set[str]:
        return {session_id for session_id in session_ids if self._state.is_live(session_id)}


class MemoryRuns:
    def __init__(self, state: MemoryState) -> None:
        self._state = state

    async def insert(self, run: NewRun) -> bool:
        return self._insert(run, RunState.QUEUED, None)

    async def refuse(self, run: NewRun, error: dict[str, Any]) -> bool:
        return self._insert(run, RunState.FAILED, error)

    async def claim(self, run_id: str, session_id: str) -> ClaimedRun | None:
        run = self._state.runs.get(run_id)
        if run is None or not self._state.is_live(session_id) or not self._claimable(run):
            return None
        if run.state is RunState.RUNNING and self._state.never_came_back(run.session_id):
            self._count_crash(run)
        run.state, run.session_id, run.hinted_s = RunState.RUNNING, session_id, self._state.clock()
        run.attempt += 1
        new = run.new
        return ClaimedRun(
            run_id=run_id,
            org_id=new.org_id,
            play=new.play,
            input=new.input,
            options=new.options,
            attempt=run.attempt,
            epoch_ms=run.epoch_ms,
            crashes=run.crashes,
        )

    async def facts(self, run_id: str) -> RunFacts | None:
        run = self._state.runs.get(run_id)
        if run is None or run.state in ENDED_RUNS:
            return None
        new = run.new
        return RunFacts(run_id=run_id, org_id=new.org_id, play=new.play, input=new.input, options=new.options)

    async def journal(self, run_id: str, after_seq: int = -1) -> list[JournalEntry]:
        entries = [entry for _, entry in self._state.journal.get(run_id, []) if entry.seq > after_seq]
        return sorted(entries, key=lambda entry: entry.seq)

    async def append_journal(self, run_id: str, attempt: int, entries: Sequence[JournalEntry]) -> None:
        if not entries:
            return
        self._state.held(run_id, attempt)
        stored = self._state.journal.setdefault(run_id, [])
        known = {(by, entry.seq, entry.op_key, entry.digest) for by, entry in stored}
        taken = {entry.seq for _, entry in stored} | {entry.op_key for _, entry in stored}
        fresh = [e for e in entries if (attempt, e.seq, e.op_key, e.digest) not in known]
        if any(entry.seq in taken or entry.op_key in taken for entry in fresh):
            raise AttemptLostError(f"run {run_id} has other journal entries at these places: stop quietly")
        stored.extend((attempt, _as_stored(entry)) for entry in fresh)

    async def arm_timer(self, run_id: str, attempt: int, op_key: str, delay_s: float) -> None:
        self._state.held(run_id, attempt)
        due_s = self._state.clock() + delay_s
        boundaries = self._state.boundaries.setdefault(run_id, {})
        boundaries.setdefault(op_key, MemoryBoundary(kind="timer", due_s=due_s))

    async def rest(
        self, run_id: str, attempt: int, op_key: str, delay_s: float, *, kind: str = "lane"
    ) -> None:
        self._state.held(run_id, attempt)
        due_s = self._state.clock() + delay_s
        self._state.boundaries.setdefault(run_id, {})[op_key] = MemoryBoundary(kind=kind, due_s=due_s)

    async def cancel_boundary(self, run_id: str, attempt: int, op_key: str) -> None:
        self._state.held(run_id, attempt)
        self._state.end_datasets(run_id, op_key)

    async def poll(self, run_id: str, attempt: int) -> RunPoll:
        self._state.resolve_due(run_id)
        run = self._state.held(run_id, attempt)
        journaled = {entry.op_key for _, entry in self._state.journal.get(run_id, [])}
        resolved = [
            (op_key, boundary.outcome)
            for op_key, boundary in sorted(self._state.boundaries.get(run_id, {}).items())
            if boundary.state in (BoundaryState.RESOLVED, BoundaryState.TIMED_OUT) and op_key not in journaled
        ]
        return RunPoll(wakes=run.wakes, resolved=tuple(resolved))

    async def suspend(self, run_id: str, attempt: int, wakes_seen: int) -> bool:
        run = self._held_or_none(run_id, attempt)
        if run is None or run.wakes != wakes_seen:
            return False
        run.state, run.session_id, run.wakes_seen = RunState.WAITING, None, wakes_seen
        return True

    async def end(
        self,
        run_id: str,
        attempt: int,
        state: RunState,
        *,
        result: bytes | None,
        error: dict[str, Any] | None,
    ) -> bool:
        run = self._held_or_none(run_id, attempt)
        if run is None:
            return False
        run.result = None if result is None else json_value.loads(result)
        run.error = error
        self._end(run, state)
        return True

    async def cancel(self, run_id: str) -> RunState | None:
        run = self._state.runs.get(run_id)
        if run is None:
            return None
        if run.state not in ENDED_RUNS:
            self._end(run, RunState.CANCELLED)
        return run.state

    async def fail(self, run_id: str, error: dict[str, Any]) -> bool:
        run = self._state.runs.get(run_id)
        if run is None or run.state in ENDED_RUNS:
            return False
        run.error = error
        self._end(run, RunState.FAILED)
        return True

    async def release(self, run_id: str, attempt: int, after_s: float = 0.0) -> None:
        run = self._held_or_none(run_id, attempt)
        if run is not None:
            run.session_id = None
            run.hinted_s = self._state.clock() + after_s if after_s else None

    async def pin(self, run_id: str, source_hash: str) -> str:
        run = self._state.runs[run_id]
        run.source_hash = run.source_hash or source_hash
        return run.source_hash

    async def unavailable(self, run_id: str) -> float:
        run, now = self._state.runs[run_id], self._state.clock()
        done = self._progress(run_id)
        forgotten = run.unavailable_s < now - self._state.limits.version_forget_s
        if run.unavailable_since_s is None or done > run.unavailable_progress or forgotten:
            run.unavailable_since_s = now
        run.unavailable_s, run.unavailable_progress = now, done
        return now - run.unavailable_since_s

    async def overdue(self) -> list[OverdueRun]:
        found: list[OverdueRun] = []
        now, most_s = self._state.clock(), 2 * self._state.limits.sweep_s
        for run_id, run in self._state.runs.items():
            deadline_s = run.new.options.get("deadline_s")
            if deadline_s is None or run.state in ENDED_RUNS:
                continue
            since_s = now if run.looked_s is None else run.looked_s
            run.looked_s = now
            if self._is_active(run):
                run.active_s += min(now - since_s, most_s)
            if run.active_s >= deadline_s:
                found.append(OverdueRun(run_id=run_id, active_s=run.active_s, deadline_s=deadline_s))
        return found

    def _is_active(self, run: MemoryRun) -> bool:
        slices = [
            one
            for dataset in self._state.datasets.values()
            if dataset.new.run_id == run.new.run_id
            for one in dataset.slices.values()
        ]
        return self._state.is_live(run.session_id) or any(
            self._state.is_live(one.session_id) for one in slices
        )

    async def add_logs(self, run_id: str, lines: Sequence[LogLine]) -> None:
        for line in lines:
            self._state.logs.setdefault((run_id, line.scope, line.n), line)

    async def ended(self, run_ids: Sequence[str]) -> set[str]:
        runs = self._state.runs
        return {run_id for run_id in run_ids if run_id not in runs or runs[run_id].state in ENDED_RUNS}

    def _insert(self, run: NewRun, state: RunState, error: dict[str, Any] | None) -> bool:
        if run.run_id in self._state.runs:
            return False
        number = len(self._state.runs) + 1
        self._state.runs[run.run_id] = MemoryRun(
            new=run,
            number=number,
            state=state,
            hinted_s=self._state.clock(),
            error=error,
            epoch_ms=int(self._state.clock() * 1000),
        )
        return True

    def _claimable(self, run: MemoryRun) -> bool:
        return is_resumable(self._state, run)

    def _count_crash(self, run: MemoryRun) -> None:
        done = self._progress(run.new.run_id)
        run.crashes = 1 if done > run.crash_progress else run.crashes + 1
        run.crash_progress = max(run.crash_progress, done)

    def _progress(self, run_id: str) -> int:
        datasets = [one for one in self._state.datasets.values() if one.new.run_id == run_id]
        ended = sum(row.state in ENDED_ROWS for one in datasets for row in one.rows.values())
        return len(self._state.journal.get(run_id, [])) + ended

    def _held_or_none(self, run_id: str, attempt: int) -> MemoryRun | None:
        try:
            return self._state.held(run_id, attempt)
        except AttemptLostError:
            return None

    def _end(self, run: MemoryRun, state: RunState) -> None:
        run.state, run.session_id = state, None
        self._state.end_datasets(run.new.run_id)


def _as_stored(entry: JournalEntry) -> JournalEntry:
    """Through JSON and back, as a real store would."""
    return replace(entry, kind=str(entry.kind), outcome=json_value.loads(json_value.dumps(entry.outcome)))
