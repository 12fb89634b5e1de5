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
from runtime.model.boundary import Event
from runtime.model.budget import Caps, RunBudget
from runtime.model.insight import RunInsight
from runtime.model.run import ENDED_RUNS, NewRun
from runtime.model.sample import RunHistory
from runtime.model.status import RowFailure, RunStatus, SheetRow
from runtime.model.stored_row import StoredRow, Stretch
from runtime.policy import insight
from runtime.policy.limits import Limits
from runtime.postgres_store.budgets import PostgresBudgets
from runtime.postgres_store.pool import Pool, open_pool
from runtime.postgres_store.reading import PostgresReads
from runtime.postgres_store.runs import PostgresRuns
from runtime.postgres_store.samples import PostgresSamples
from runtime.postgres_store.status import PostgresStatus
from runtime.postgres_store.waits import PostgresWaits
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

    def store_event(self, event: Event) -> bool:
        """True if the event is new."""
        return self._call(lambda pool: PostgresWaits(pool, self._limits).store_event(event))

    def status(self, run_id: str) -> RunStatus | None:
        """The run as it is now, None if unknown."""
        return self._call(lambda pool: PostgresStatus(pool, self._limits).run_status(run_id))

    def insight(self, status: RunStatus) -> RunInsight:
        """What the run's counts mean now."""
        return self._call(lambda pool: self._insight(pool, status))

    async def _insight(self, pool: Pool, status: RunStatus) -> RunInsight:
        samples = PostgresSamples(pool, self._limits)
        waits = status.state not in ENDED_RUNS
        earlier = await samples.since(status.run_id, self._limits.status_rate_s)
        rows_per_s = insight.rate(status, earlier)
        lanes = await samples.lanes_now(status.org_id) if waits else []
        awaited = await PostgresWaits(pool, self._limits).awaited(status.run_id) if waits else []
        return RunInsight(
            rows_per_s=rows_per_s,
            left_s=insight.left(status, rows_per_s),
            active_s=await samples.active_s(status.run_id),
            deadline_s=status.options.get("deadline_s"),
            spending=insight.spending(status.usage),
            slowest_lane=insight.slowest(lanes, status.now),
            failures=tuple(await samples.failure_kinds(status.run_id)),
            awaited=tuple(awaited),
            children=await PostgresStatus(pool, self._limits).children(status.run_id),
        )

    def history(self, status: RunStatus) -> RunHistory:
        """What was kept of the run over time."""
        return self._call(lambda pool: self._history(pool, status))

    async def _history(self, pool: Pool, status: RunStatus) -> RunHistory:
        samples = PostgresSamples(pool, self._limits)
        since, until = status.started_at or status.created_at, status.ended_at or status.now
        return RunHistory(
            samples=tuple(await samples.of_run(status.run_id)),
            lanes=tuple(await samples.lanes(status.org_id, since, until)),
            cells=tuple(await samples.cells(status.run_id)),
        )

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

    def budget(self, run_id: str) -> RunBudget | None:
        """How a run's budget stands; None if it has no caps."""
        return self._call(lambda pool: PostgresBudgets(pool, self._limits).of_run(run_id))

    def change_budget(self, run_id: str, caps: Caps) -> bool:
        """New caps where they are given; False if the run has none of its own."""
        return self._call(lambda pool: PostgresBudgets(pool, self._limits).change(run_id, caps))

    def rows(self, stretch: Stretch) -> list[StoredRow] | None:
        """Rows of a dataset in input order; None: there is no such dataset."""
        return self._call(lambda pool: PostgresReads(pool, self._limits).rows(stretch))

    def columns(self, dataset_id: int) -> tuple[str, ...]:
        """A dataset's stored columns: of its input, then those that were computed."""
        return self._call(lambda pool: PostgresReads(pool, self._limits).columns(dataset_id))

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
