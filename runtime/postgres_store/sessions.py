"""Lives of worker processes."""

from collections.abc import Sequence

import psycopg
from psycopg import AsyncConnection

from runtime.policy.limits import Limits
from runtime.postgres_store.named import load
from runtime.postgres_store.pool import Database, Pool, database_errors

_SQL = load("sessions")


class PostgresSessions:
    """SessionStore over Postgres."""

    def __init__(self, pool: Pool, limits: Limits) -> None:
        self._database = Database(pool, limits)
        self._limits = limits

    async def open(self, session_id: str, *, role: str, hostname: str, pid: int, ttl_s: float) -> None:
        values = {"session_id": session_id, "role": role, "hostname": hostname, "pid": pid, "ttl_s": ttl_s}

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(_SQL["open"], values)

        await self._database.run("opening a session", work)

    async def renew(self, session_id: str, ttl_s: float) -> bool:
        async def work(connection: AsyncConnection) -> bool:
            cursor = await connection.execute(_SQL["renew"], {"session_id": session_id, "ttl_s": ttl_s})
            return cursor.rowcount == 1

        return await self._database.run("renewing a session", work)

    async def close(self, session_id: str) -> None:
        async def work(connection: AsyncConnection) -> None:
            await connection.execute(_SQL["close"], {"session_id": session_id})

        await self._database.run("closing a session", work)

    async def registered(self, session_id: str, epoch: str) -> None:
        """Remember that the session may hold leases in Redis from now on."""

        async def work(connection: AsyncConnection) -> None:
            await connection.execute(_SQL["registered"], {"session_id": session_id, "epoch": epoch})

        await self._database.run("registering a session", work)

    async def others_registered(self, session_id: str) -> bool:
        """Whether another live session may hold leases in Redis: then lost data means grace."""

        async def work(connection: AsyncConnection) -> bool:
            cursor = await connection.execute(_SQL["others_registered"], {"session_id": session_id})
            row = await cursor.fetchone()
            return bool(row and row[0])

        return await self._database.run("reading sessions", work)

    async def end_expired(self) -> list[str]:
        forget = {"keep_s": self._limits.session_keep_s, "batch": self._limits.sweep_batch}

        async def work(connection: AsyncConnection) -> list[str]:
            cursor = await connection.execute(_SQL["end_expired"])
            ended = [row[0] for row in await cursor.fetchall()]
            await connection.execute(_SQL["forget_ended"], forget)
            return ended

        return await self._database.run("ending expired sessions", work)

    async def live(self, session_ids: Sequence[str]) -> set[str]:
        async def work(connection: AsyncConnection) -> set[str]:
            cursor = await connection.execute(_SQL["live"], {"session_ids": list(session_ids)})
            return {row[0] for row in await cursor.fetchall()}

        return await self._database.run("reading sessions", work)


def renew_sync(connection: psycopg.Connection, session_id: str, ttl_s: float) -> bool:
    """Renew from a plain thread on its own autocommit connection; False: the session was ended."""
    with database_errors("renewing a session"):
        return connection.execute(_SQL["renew"], {"session_id": session_id, "ttl_s": ttl_s}).rowcount == 1
