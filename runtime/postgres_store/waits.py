"""Durable waits that events end, and waits of rows.

Whoever arms, ends or delivers under an event key holds that key's advisory lock until its commit, so an event before,
between and after is never lost. Order of locks: slices, rows, event keys, boundaries, row waits, runs.
"""

from collections.abc import Sequence
from typing import Any

from psycopg import AsyncConnection

from runtime.errors import AttemptLostError, OwnershipLostError, SliceLostError
from runtime.model import json_value
from runtime.model.boundary import (
    Awaited,
    BodyAt,
    BoundaryAt,
    BoundaryState,
    Delivered,
    Event,
    KnownBoundary,
)
from runtime.model.row_wait import NewBoundary
from runtime.model.run import RunState
from runtime.policy.identity import event_lock
from runtime.policy.limits import Limits
from runtime.postgres_store.named import load
from runtime.postgres_store.pool import Database, Pool

_SQL = load("events")
_OF_BODY = {
    "held": "body_held",
    "due": "body_due",
    "find": "body_boundary",
    "prepare": "prepare_body",
    "adopt": "adopt_body",
    "armed": "armed_body",
    "close": "close_body",
}
_OF_ROW = {
    "held": "row_held",
    "due": "row_due",
    "find": "row_boundary",
    "prepare": "prepare_row",
    "adopt": "adopt_row",
    "armed": "armed_row",
    "close": "close_row",
}


class PostgresWaits:
    """WaitStore over Postgres."""

    def __init__(self, pool: Pool, limits: Limits) -> None:
        self._database = Database(pool, limits)
        self._limits = limits

    async def arm_event(self, at: BodyAt, wait: NewBoundary) -> None:
        values = _place(at) | _armed(wait)

        async def work(connection: AsyncConnection) -> int:
            async with connection.pipeline(), connection.transaction():
                await connection.execute(_SQL["lock_keys"], {"locks": [event_lock(wait.event_key)]})
                held = await (await connection.execute(_SQL["arm_body"], values)).fetchone()
            return 0 if held is None else held[0]

        if not await self._database.run("arming an event wait", work):
            raise _lost(at)

    async def row_boundaries(
        self, dataset_id: int, positions: Sequence[int]
    ) -> dict[tuple[int, str], KnownBoundary]:
        values = {"dataset_id": dataset_id, "positions": list(positions)}

        async def work(connection: AsyncConnection) -> list[tuple[Any, ...]]:
            async with connection.pipeline():
                await connection.execute(_SQL["rows_due"], values)
                cursor = await connection.execute(_SQL["rows_boundaries"], values)
                return await cursor.fetchall()

        rows = await self._database.run("reading waits of rows", work)
        return {(row[0], row[1]): _known(row) for row in rows}

    async def find(self, at: BoundaryAt) -> KnownBoundary | None:
        async def work(connection: AsyncConnection) -> KnownBoundary | None:
            return await _find(connection, at)

        return await self._database.run("reading a boundary", work)

    async def prepare(self, at: BoundaryAt, event_key: str, prepared: dict[str, Any]) -> KnownBoundary:
        values = {"event_key": event_key, "prepared": _json(prepared)}
        return await self._change("prepare", at, values)

    async def adopt(self, at: BoundaryAt, from_holder: int) -> bool:
        found = await self._change("adopt", at, {"from_holder": from_holder})
        return found.state is BoundaryState.ARMING and found.holder == at.holder

    async def armed(
        self, at: BoundaryAt, wait: NewBoundary, prepared: dict[str, Any] | None = None
    ) -> KnownBoundary:
        stated = None if prepared is None else _json(prepared)
        return await self._change("armed", at, {"prepared": stated, **_armed(wait)}, key=wait.event_key)

    async def close(self, at: BoundaryAt, outcome: dict[str, Any]) -> KnownBoundary:
        return await self._change("close", at, {"outcome": _json(outcome)})

    async def store_event(self, event: Event) -> bool:
        async def work(connection: AsyncConnection) -> int:
            return (await connection.execute(_SQL["store_event"], _event(event))).rowcount

        return await self._database.run("storing an event", work) == 1

    async def deliver(self, event: Event) -> Delivered:
        bodies, rows, run_ids = 0, 0, list[str]()
        more = True
        while more:
            ended, count, more = await self._deliver_some(event)
            bodies, rows = bodies + len(ended), rows + count
            run_ids += [run_id for run_id, state in ended if state == RunState.WAITING]
        return Delivered(bodies=bodies, rows=rows, run_ids=tuple(run_ids))

    async def _deliver_some(self, event: Event) -> tuple[list[tuple[str, str]], int, bool]:
        """One transaction: (bodies woken, rows woken, whether more may be left)."""
        batch = self._limits.event_batch
        values = _event(event) | {"batch": batch}

        async def work(connection: AsyncConnection) -> tuple[list[tuple[str, str]], int, bool]:
            async with connection.transaction():
                await connection.execute(_SQL["lock_keys"], {"locks": [event_lock(event.key)]})
                await connection.execute(_SQL["store_event"], values)
                if await (await connection.execute(_SQL["is_open"], values)).fetchone() is None:
                    return [], 0, False
                bodies = await (await connection.execute(_SQL["end_bodies"], values)).fetchall()
                row = await (await connection.execute(_SQL["end_rows"], values)).fetchone()
                rows = 0 if row is None else row[0]
                more = len(bodies) >= batch or rows >= batch
                if not more:
                    await connection.execute(_SQL["delivered"], values)
                return bodies, rows, more

        return await self._database.run("delivering an event", work)

    async def undelivered(self) -> list[Event]:
        rows = await self._rows("undelivered", late_s=self._limits.sweep_s, batch=self._limits.sweep_batch)
        return [Event(org_id=org, event_id=one, key=key, payload=value) for org, one, key, value in rows]

    async def prune(self) -> int:
        values = {"keep_s": self._limits.event_keep_s, "batch": self._limits.event_batch}

        async def work(connection: AsyncConnection) -> int:
            return (await connection.execute(_SQL["prune"], values)).rowcount

        return await self._database.run("forgetting old events", work)

    async def awaited(self, run_id: str) -> list[Awaited]:
        rows = await self._rows("awaited", run_id=run_id, batch=self._limits.awaited_shown)
        return [
            Awaited(
                where=where,
                kind=kind,
                name=name,
                count=count,
                due_at=due and due.isoformat(),
                since=since.isoformat(),
            )
            for where, kind, name, count, due, since in rows
        ]

    async def _change(
        self, what: str, at: BoundaryAt, values: dict[str, Any], *, key: str | None = None
    ) -> KnownBoundary:
        """A fenced statement about one boundary, then the boundary as it is."""
        values = _place(at) | values

        async def work(connection: AsyncConnection) -> KnownBoundary | None:
            async with connection.transaction():
                if await (await connection.execute(_statement(at, "held"), values)).fetchone() is None:
                    raise _lost(at)
                if key is not None:
                    await connection.execute(_SQL["lock_keys"], {"locks": [event_lock(key)]})
                await connection.execute(_statement(at, what), values)
                return await _find(connection, at)

        found = await self._database.run(f"{what} of a boundary", work)
        if found is None:
            raise _lost(at)
        return found

    async def _rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        async def work(connection: AsyncConnection) -> list[tuple[Any, ...]]:
            return await (await connection.execute(_SQL[statement], values)).fetchall()

        return await self._database.run(f"events.{statement}", work)


def _statement(at: BoundaryAt, what: str) -> bytes:
    return _SQL[(_OF_BODY if isinstance(at, BodyAt) else _OF_ROW)[what]]


async def _find(connection: AsyncConnection, at: BoundaryAt) -> KnownBoundary | None:
    values = _place(at)
    await connection.execute(_statement(at, "due"), values)
    row = await (await connection.execute(_statement(at, "find"), values)).fetchone()
    return None if row is None else _known(row)


def _known(row: tuple[Any, ...]) -> KnownBoundary:
    _, _, state, kind, due_ms, outcome, event_key, prepared, holder = row
    return KnownBoundary(
        state=BoundaryState(state),
        kind=kind,
        due_ms=due_ms,
        outcome=outcome,
        event_key=event_key,
        prepared=prepared,
        holder=holder,
    )


def _place(at: BoundaryAt) -> dict[str, Any]:
    if isinstance(at, BodyAt):
        return {"run_id": at.run_id, "key": at.key, "holder": at.attempt}
    return {
        "dataset_id": at.dataset_id,
        "page": at.page,
        "slice": at.slice,
        "position": at.position,
        "key": at.key,
        "holder": at.fence,
    }


def _armed(wait: NewBoundary) -> dict[str, Any]:
    outcome = None if wait.timeout_outcome is None else _json(wait.timeout_outcome)
    return {"event_key": wait.event_key, "due_ms": wait.due_ms, "timeout_outcome": outcome}


def _event(event: Event) -> dict[str, Any]:
    return {
        "org_id": event.org_id,
        "event_id": event.event_id,
        "event_key": event.key,
        "payload": _json(event.payload),
    }


def _json(value: Any) -> str:
    return json_value.dumps(value).decode()


def _lost(at: BoundaryAt) -> OwnershipLostError:
    if isinstance(at, BodyAt):
        return AttemptLostError(f"attempt {at.attempt} no longer holds run {at.run_id}: stop quietly")
    return SliceLostError(
        f"slice {at.dataset_id}/{at.page}/{at.slice} has a newer holder: its waits are armed there"
    )
