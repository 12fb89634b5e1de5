"""Runs, their journal and their waits."""

from collections.abc import Sequence
from typing import Any

from psycopg import AsyncConnection, Rollback

from runtime.errors import AttemptLostError
from runtime.model import json_value
from runtime.model.events import RunEnded
from runtime.model.operation import JournalEntry
from runtime.model.run import ClaimedRun, NewRun, OverdueRun, RunFacts, RunPoll, RunState
from runtime.policy.limits import Limits
from runtime.ports import EventSink, LogLine, no_events
from runtime.postgres_store.claims import DoubtfulClaims
from runtime.postgres_store.logs import log_arrays
from runtime.postgres_store.named import load
from runtime.postgres_store.pool import Database, Pool
from runtime.postgres_store.winding import wind_datasets

_SQL = load("runs")


class PostgresRuns:
    """RunStore over Postgres."""

    def __init__(self, pool: Pool, limits: Limits, events: EventSink = no_events) -> None:
        self._events = events
        self._database = Database(pool, limits)
        self._limits = limits
        self._doubts = DoubtfulClaims(self._database, _SQL["release_claims"], limits.claims_in_doubt)

    async def insert(self, run: NewRun) -> bool:
        return await self._insert(run, RunState.QUEUED, None)

    async def refuse(self, run: NewRun, error: dict[str, Any]) -> bool:
        new = await self._insert(run, RunState.FAILED, error)
        if new:
            self._tell_end(run.run_id, RunState.FAILED, error=error)
        return new

    async def claim(self, run_id: str, session_id: str) -> ClaimedRun | None:
        await self._doubts.give_back()
        with self._doubts.claiming() as token:
            rows = await self._rows("claim", run_id=run_id, session_id=session_id, claim=token)
        if not rows:
            return None
        run_id, org_id, play, value, options, attempt, epoch_ms, crashes = rows[0]
        return ClaimedRun(
            run_id=run_id,
            org_id=org_id,
            play=play,
            input=value,
            options=options,
            attempt=attempt,
            epoch_ms=epoch_ms,
            crashes=crashes,
        )

    async def give_back_doubtful(self) -> None:
        """Free runs whose claim was never answered; for the process's heartbeat."""
        await self._doubts.give_back()

    async def facts(self, run_id: str) -> RunFacts | None:
        rows = await self._rows("facts", run_id=run_id)
        if not rows:
            return None
        run_id, org_id, play, value, options = rows[0]
        return RunFacts(run_id=run_id, org_id=org_id, play=play, input=value, options=options)

    async def journal(self, run_id: str, after_seq: int = -1) -> list[JournalEntry]:
        rows = await self._rows("journal", run_id=run_id, after_seq=after_seq)
        return [
            JournalEntry(seq=seq, op_key=op_key, kind=kind, digest=digest, outcome=outcome)
            for seq, op_key, kind, digest, outcome in rows
        ]

    async def append_journal(self, run_id: str, attempt: int, entries: Sequence[JournalEntry]) -> None:
        if not entries:
            return
        values = {"run_id": run_id, "attempt": attempt, **_entry_arrays(entries)}

        async def work(connection: AsyncConnection) -> None:
            async with connection.pipeline(), connection.transaction():
                await connection.execute(_SQL["append_journal"], values)
                cursor = await connection.execute(_SQL["count_journal"], values)
                stored = await cursor.fetchone()
                if stored is None or stored[0] != len(entries):
                    raise _lost(run_id, attempt)

        await self._database.run("writing the journal", work)

    async def arm_timer(self, run_id: str, attempt: int, op_key: str, delay_s: float) -> None:
        rows = await self._rows("arm_timer", run_id=run_id, attempt=attempt, op_key=op_key, delay_s=delay_s)
        if rows[0][0] != 1:
            raise _lost(run_id, attempt)

    async def rest(
        self, run_id: str, attempt: int, op_key: str, delay_s: float, *, kind: str = "lane"
    ) -> None:
        rows = await self._rows(
            "rest", run_id=run_id, attempt=attempt, op_key=op_key, delay_s=delay_s, kind=kind
        )
        if rows[0][0] != 1:
            raise _lost(run_id, attempt)

    async def cancel_boundary(self, run_id: str, attempt: int, op_key: str) -> None:
        values = {"run_id": run_id, "attempt": attempt, "op_key": op_key}

        async def work(connection: AsyncConnection) -> list[int]:
            async with connection.transaction():
                held = await connection.execute(_SQL["held"], values)
                if await held.fetchone() is None:
                    raise _lost(run_id, attempt)
                cursor = await connection.execute(_SQL["cancel_dataset"], values)
                await connection.execute(_SQL["cancel_boundary"], values)
                return [row[0] for row in await cursor.fetchall()]

        datasets = await self._database.run("cancelling a boundary", work)
        await wind_datasets(self._database, self._limits, datasets)

    async def poll(self, run_id: str, attempt: int) -> RunPoll:
        values = {"run_id": run_id, "attempt": attempt}

        async def work(connection: AsyncConnection) -> list[tuple[Any, ...]]:
            async with connection.pipeline():
                await connection.execute(_SQL["resolve_run_timers"], values)
                cursor = await connection.execute(_SQL["poll"], values)
                return await cursor.fetchall()

        rows = await self._database.run("polling a run", work)
        if not rows:
            raise _lost(run_id, attempt)
        resolved = tuple((op_key, outcome) for _, op_key, outcome in rows if op_key is not None)
        return RunPoll(wakes=rows[0][0], resolved=resolved)

    async def suspend(self, run_id: str, attempt: int, wakes_seen: int) -> bool:
        return await self._count("suspend", run_id=run_id, attempt=attempt, wakes_seen=wakes_seen) == 1

    async def end(
        self,
        run_id: str,
        attempt: int,
        state: RunState,
        *,
        result: bytes | None,
        error: dict[str, Any] | None,
    ) -> bool:
        text = None if result is None else result.decode()
        values = {
            "run_id": run_id,
            "attempt": attempt,
            "state": state.value,
            "result": text,
            "error": _json(error),
        }
        ended = await self._end("end", values)
        if ended:
            self._tell_end(run_id, state, result, error)
        return ended

    async def cancel(self, run_id: str) -> RunState | None:
        if await self._end("cancel", {"run_id": run_id}):
            self._tell_end(run_id, RunState.CANCELLED)
        rows = await self._rows("state", run_id=run_id)
        return RunState(rows[0][0]) if rows else None

    async def fail(self, run_id: str, error: dict[str, Any]) -> bool:
        ended = await self._end("fail", {"run_id": run_id, "error": _json(error)})
        if ended:
            self._tell_end(run_id, RunState.FAILED, error=error)
        return ended

    async def release(self, run_id: str, attempt: int, after_s: float = 0.0) -> None:
        await self._count("release", run_id=run_id, attempt=attempt, after_s=after_s)

    async def pin(self, run_id: str, source_hash: str) -> str:
        rows = await self._rows("pin", run_id=run_id, source_hash=source_hash)
        return rows[0][0] if rows else source_hash

    async def unavailable(self, run_id: str) -> float:
        rows = await self._rows("unavailable", run_id=run_id, forget_s=self._limits.version_forget_s)
        return rows[0][0] if rows else 0.0

    async def overdue(self) -> list[OverdueRun]:
        rows = await self._rows("count_active", most_s=2 * self._limits.sweep_s)
        return [
            OverdueRun(run_id=run_id, active_s=active_s, deadline_s=deadline_s)
            for run_id, active_s, deadline_s in rows
            if active_s >= deadline_s
        ]

    async def add_logs(self, run_id: str, lines: Sequence[LogLine]) -> None:
        if lines:
            await self._count("add_logs", **log_arrays([(run_id, line) for line in lines]))

    async def ended(self, run_ids: Sequence[str]) -> set[str]:
        rows = await self._rows("live", run_ids=list(run_ids))
        return set(run_ids) - {row[0] for row in rows}

    async def _insert(self, run: NewRun, state: RunState, error: dict[str, Any] | None) -> bool:
        values = {
            "run_id": run.run_id,
            "org_id": run.org_id,
            "play": run.play,
            "input": json_value.dumps(run.input).decode(),
            "options": json_value.dumps(run.options).decode(),
            "state": state.value,
            "error": _json(error),
        }
        return await self._count("insert", **values) == 1

    async def _end(self, statement: str, values: dict[str, Any]) -> bool:
        async def work(connection: AsyncConnection) -> list[int] | None:
            async with connection.transaction():
                first = await connection.execute(_SQL["end_datasets"], values)
                datasets = [row[0] for row in await first.fetchall()]
                await connection.execute(_SQL["end_boundaries"], values)
                ended = await connection.execute(_SQL[statement], values)
                if ended.rowcount != 1:
                    raise Rollback
                # The run row is locked now: what was opened between the first look and here ends too.
                second = await connection.execute(_SQL["end_datasets"], values)
                await connection.execute(_SQL["end_boundaries"], values)
                return datasets + [row[0] for row in await second.fetchall()]
            return None

        datasets = await self._database.run("ending a run", work)
        if datasets is None:
            return False
        await wind_datasets(self._database, self._limits, datasets)
        return True

    def _tell_end(
        self,
        run_id: str,
        state: RunState,
        result: bytes | None = None,
        error: dict[str, Any] | None = None,
    ) -> None:
        """The last event of a run, told by whose statement ended it."""
        if result is not None and len(result) > self._limits.event_bytes:
            self._events.emit(run_id, RunEnded(state=state.value, is_whole=False))
            return
        value = None if result is None else json_value.loads(result)
        self._events.emit(run_id, RunEnded(state=state.value, result=value, error=error))

    async def _rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        async def work(connection: AsyncConnection) -> list[tuple[Any, ...]]:
            return await (await connection.execute(_SQL[statement], values)).fetchall()

        return await self._database.run(f"runs.{statement}", work)

    async def _count(self, statement: str, **values: Any) -> int:
        async def work(connection: AsyncConnection) -> int:
            return (await connection.execute(_SQL[statement], values)).rowcount

        return await self._database.run(f"runs.{statement}", work)


def _entry_arrays(entries: Sequence[JournalEntry]) -> dict[str, Any]:
    return {
        "seqs": [entry.seq for entry in entries],
        "op_keys": [entry.op_key for entry in entries],
        "kinds": [str(entry.kind) for entry in entries],
        "digests": [entry.digest for entry in entries],
        "outcomes": [json_value.dumps(entry.outcome).decode() for entry in entries],
    }


def _json(value: Any) -> str | None:
    return None if value is None else json_value.dumps(value).decode()


def _lost(run_id: str, attempt: int) -> AttemptLostError:
    return AttemptLostError(
        f"attempt {attempt} no longer holds run {run_id}: a newer one does, or it ended; stop quietly"
    )
