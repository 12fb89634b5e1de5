"""Connections to Postgres: how they are set up, how their errors are named, what is tried again."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import psycopg
from psycopg import AsyncConnection, errors
from psycopg.types.json import set_json_dumps, set_json_loads
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from runtime.errors import PlaylaneError, ServiceUnreachableError, ValueRefusedError
from runtime.model import json_value
from runtime.policy.limits import Limits

T = TypeVar("T")
Pool = AsyncConnectionPool[AsyncConnection]

_TURN_LOST = (errors.SerializationFailure, errors.DeadlockDetected)
_CONNECTION_LOST_CLASSES = ("08", "57")


def open_pool(database_url: str, limits: Limits, *, name: str = "playlane") -> Pool:
    """A closed pool with playlane's settings; open it inside the process's loop."""

    async def configure(connection: AsyncConnection) -> None:
        prepare_types(connection)
        timeout_ms = int(limits.database_timeout_s * 1000)
        await connection.execute(
            "select set_config('statement_timeout', %s, false),"
            " set_config('idle_in_transaction_session_timeout', %s, false), set_config('jit', 'off', false)",
            (str(timeout_ms), str(timeout_ms)),
        )

    return AsyncConnectionPool(
        database_url,
        connection_class=AsyncConnection,
        kwargs={"autocommit": True, "application_name": name, **_patience(limits)},
        min_size=1,
        max_size=limits.database_pool,
        timeout=limits.database_timeout_s,
        configure=configure,
        open=False,
        name=name,
    )


def _patience(limits: Limits) -> dict[str, int]:
    """Sessions by kill -9 or a cut network must not keep locks or sockets for hours."""
    return {
        "connect_timeout": limits.database_connect_s,
        "keepalives_idle": limits.database_keepalive_s,
        "keepalives_interval": limits.database_keepalive_again_s,
        "keepalives_count": limits.database_keepalives,
        "tcp_user_timeout": int(limits.database_silent_s * 1000),
    }


def prepare_types(connection: AsyncConnection) -> None:
    """JSON columns come and go with exact numbers."""
    set_json_loads(_loads, connection)
    set_json_dumps(json_value.dumps, connection)


@contextmanager
def database_errors(what: str) -> Iterator[None]:
    """Name every error of the driver as one of ours; `what` says which statement was at work."""
    try:
        yield
    except (PoolTimeout, PoolClosed, TooManyRequests) as error:
        raise ServiceUnreachableError(
            f"no Postgres connection for {what}: {error}; it is tried again later"
        ) from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        reason = str(error).partition("\n")[0]
        raise ServiceUnreachableError(
            f"Postgres failed at {what}: {reason}; it is tried again later"
        ) from error
    except psycopg.DataError as error:
        raise ValueRefusedError(
            f"Postgres can't hold a value given to {what}: {type(error).__name__}, SQLSTATE {error.sqlstate}"
        ) from error
    except psycopg.Error as error:
        raise PlaylaneError(
            f"Postgres refused {what}: {type(error).__name__}, SQLSTATE {error.sqlstate}"
        ) from error


class Database:
    """Runs one piece of work on a pooled connection; every piece is safe to repeat."""

    def __init__(self, pool: Pool, limits: Limits) -> None:
        self._pool = pool
        self._limits = limits

    async def run(self, what: str, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """The result of `work`; lost turns and lost connections are tried again a few times."""
        with database_errors(what):
            for attempt in range(1, self._limits.database_attempts):
                try:
                    return await self._once(work)
                except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                    if not is_transient(error):
                        raise
                    await self._before_retry(attempt, error)
            return await self._once(work)

    async def _once(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        async with self._pool.connection() as connection:
            return await work(connection)

    async def _before_retry(self, attempt: int, error: psycopg.Error) -> None:
        if not isinstance(error, _TURN_LOST):
            await self._pool.check()
        await asyncio.sleep(self._limits.database_retry_s * 2 ** (attempt - 1))


def is_transient(error: psycopg.Error) -> bool:
    """Whether the same statement may succeed at once: a lost turn or a lost connection, never a timeout."""
    if isinstance(error, _TURN_LOST):
        return True
    if isinstance(error, errors.QueryCanceled):
        return False
    return error.sqlstate is None or error.sqlstate[:2] in _CONNECTION_LOST_CLASSES


def _loads(data: str | bytes) -> object:
    return json_value.loads(data.encode() if isinstance(data, str) else data)
