"""The run stores behind blocking calls, for a process without a loop of its own."""

import asyncio
import atexit
import threading
import weakref
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

import psycopg

from runtime.errors import BadInputError, ServiceUnreachableError
from runtime.model.run import NewRun
from runtime.model.status import RowFailure, RunStatus, SheetRow
from runtime.policy.limits import Limits
from runtime.postgres_store.pool import Pool, open_pool
from runtime.postgres_store.runs import PostgresRuns
from runtime.postgres_store.status import PostgresStatus
from runtime.server_address import postgres_address

T = TypeVar("T")


class RunReader:
    """Reads and inserts runs: one connection on one loop in one thread, made at first use."""

    def __init__(self, database_url: str, limits: Limits) -> None:
        self._address = postgres_address(database_url)
        self._url = database_url
        self._limits = replace(
            limits,
            database_pool=1,
            database_timeout_s=limits.client_connect_s,
            database_attempts=limits.client_database_attempts,
        )
        self._lock = threading.Lock()
        self._loop: _LoopThread | None = None
        self._pool: Pool | None = None
        atexit.register(_close_if_left, weakref.ref(self))

    def insert(self, run: NewRun) -> bool:
        """True if the run is new."""
        return self._call(lambda pool: PostgresRuns(pool, self._limits).insert(run))

    def status(self, run_id: str) -> RunStatus | None:
        """The run as it is now, None if unknown."""
        return self._call(lambda pool: PostgresStatus(pool, self._limits).run_status(run_id))

    def sheet_page(self, org_id: str, play: str, namespace: str, after: str, limit: int) -> list[SheetRow]:
        """Rows of a sheet in key order, beginning after key `after`."""
        return self._call(
            lambda pool: PostgresStatus(pool, self._limits).sheet(
                org_id, play, namespace, after=after, limit=limit
            )
        )

    def failures(self, dataset_id: int) -> list[RowFailure]:
        """The first failed rows of a dataset."""
        return self._call(lambda pool: PostgresStatus(pool, self._limits).failures(dataset_id))

    def close(self) -> None:
        """Close the connection and end the thread; the next call opens them again."""
        with self._lock:
            self._drop()

    def _call(self, work: Callable[[Pool], Coroutine[Any, Any, T]]) -> T:
        with self._lock:
            loop, pool = self._opened()
            try:
                return loop.call(work(pool))
            except ServiceUnreachableError as error:
                # A fresh start names the server and why it does not answer.
                self._drop()
                self._probe()
                raise ServiceUnreachableError(f"Postgres at {self._address}: {error}") from error

    def _opened(self) -> tuple["_LoopThread", Pool]:
        if self._loop is None or self._pool is None:
            self._probe()
            self._loop = _LoopThread()
            self._pool = self._loop.call(self._open_pool())
        return self._loop, self._pool

    async def _open_pool(self) -> Pool:
        pool = open_pool(self._url, self._limits, name="playlane-client")
        await pool.open()
        return pool

    def _probe(self) -> None:
        try:
            with psycopg.connect(self._url, connect_timeout=int(self._limits.client_connect_s)) as connection:
                migrated = connection.execute("select to_regclass('runs')").fetchone()
        except psycopg.OperationalError as error:
            reason = str(error).partition("\n")[0]
            raise ServiceUnreachableError(
                f"Postgres at {self._address} does not answer ({reason}): "
                "start it, or name the right one in PLAYLANE_DATABASE_URL"
            ) from error
        if migrated is None or migrated[0] is None:
            raise BadInputError(
                f"the database at {self._address} has no playlane tables: run `playlane migrate` first"
            )

    def _drop(self) -> None:
        if self._loop is not None:
            if self._pool is not None:
                self._loop.call(self._pool.close())
            self._loop.stop()
        self._loop = self._pool = None


class _LoopThread:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="playlane-client", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _close_if_left(reader: "weakref.ref[RunReader]") -> None:
    """A script that ends without closing its client must not end in warnings."""
    left = reader()
    if left is not None:
        left.close()
