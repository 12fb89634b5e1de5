"""The decisions of `settle_page` and of the sweeps, each one statement that trusts no caller."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from psycopg import AsyncConnection

from runtime.model import json_value
from runtime.model.dataset import FAIL_FAST, WINDING_DATASETS, DatasetState, EndedDataset
from runtime.model.row_wait import WaitKind, WokenPage
from runtime.model.run import RunState
from runtime.policy.dataset_outcome import FAILURES_NAMED, FailedRow, failure_lines, outcome_of
from runtime.policy.identity import advisory_key
from runtime.policy.limits import Limits
from runtime.policy.slicing import slice_rows
from runtime.ports import LogLine
from runtime.postgres_store.logs import log_arrays
from runtime.postgres_store.named import load
from runtime.postgres_store.pool import Database, Pool, database_errors
from runtime.postgres_store.waiting import Waiting
from runtime.postgres_store.winding import wind_datasets, wind_pages

_SQL = load("settling")
_ADD_LOGS = load("runs")["add_logs"]


class PostgresSettling:
    """SettlingStore over Postgres."""

    def __init__(self, pool: Pool, limits: Limits) -> None:
        self._pool = pool
        self._database = Database(pool, limits)
        self._limits = limits
        self._waiting = Waiting(self._database, limits)

    async def settle_page(self, dataset_id: int, page: int) -> bool:
        values = {"dataset_id": dataset_id, "page": page}

        async def work(connection: AsyncConnection) -> tuple[tuple[Any, ...] | None, bool]:
            # Each statement commits by itself: two finishers that share a transaction's time don't see each other.
            async with connection.pipeline() as pipeline:
                state = await connection.execute(_SQL["state"], values)
                await connection.execute(_SQL["close_slices"], values)
                await pipeline.sync()
                settled = await connection.execute(_SQL["settle_page"], values)
                await pipeline.sync()
                return await state.fetchone(), settled.rowcount == 1

        state, settled = await self._database.run("settling a page", work)
        if state is None:
            return settled
        if DatasetState(state[0]) in WINDING_DATASETS:
            settled = await wind_pages(self._database, dataset_id, [page]) or settled
            if state[0] == DatasetState.FAILING:  # its body waits for the last page
                await wind_datasets(self._database, self._limits, [dataset_id])
            return settled
        if state[1] and not settled:
            await self._waiting.park(dataset_id, page)
        return settled

    async def wake_rows(self) -> list[WokenPage]:
        return await self._waiting.wake_due()

    async def wake_budget(self, run_id: str, most: int | None = None) -> list[WokenPage]:
        return await self._waiting.wake_kind(run_id, WaitKind.BUDGET, most)

    async def claim_pages(self, dataset_id: int) -> list[int]:
        values = {"dataset_id": dataset_id, "window": self._limits.pages_in_flight}

        async def work(connection: AsyncConnection) -> list[int]:
            # Two transactions: pages are locked before datasets everywhere.
            async with connection.pipeline() as pipeline:
                await connection.execute(_SQL["move_window"], values)
                await pipeline.sync()
                cursor = await connection.execute(_SQL["pace"], values)
                pace = await cursor.fetchone()
            if pace is None or not pace[2]:
                return []
            size = slice_rows(
                rows_settled=pace[0] * self._limits.page_rows, elapsed_s=pace[1], limits=self._limits
            )
            cut = await connection.execute(_SQL["cut_pages"], {**values, "slice_rows": size})
            return [row[0] for row in await cut.fetchall()]

        return await self._database.run("claiming pages", work)

    async def due_slices(self, dataset_id: int, page: int, epoch: str, *, queue_empty: bool) -> list[int]:
        rows = await self._rows(
            "due_slices", dataset_id=dataset_id, page=page, epoch=epoch, stale_s=self._stale_s(queue_empty)
        )
        return sorted(row[0] for row in rows)

    async def end_dataset(self, dataset_id: int) -> EndedDataset | None:
        async def work(connection: AsyncConnection) -> EndedDataset | None:
            async with connection.transaction():
                cursor = await connection.execute(_SQL["end_dataset"], {"dataset_id": dataset_id})
                ended = await cursor.fetchone()
                return None if ended is None else await _resolve(connection, dataset_id, ended)

        return await self._database.run("ending a dataset", work)

    async def stale_pages(self, epoch: str, *, queue_empty: bool) -> list[tuple[str, int, int]]:
        rows = await self._rows(
            "stale_pages", epoch=epoch, stale_s=self._stale_s(queue_empty), batch=self._limits.sweep_batch
        )
        return [(run_id, dataset_id, page) for run_id, dataset_id, page in rows]

    async def stale_datasets(self) -> list[int]:
        rows = await self._rows(
            "stale_datasets", window=self._limits.pages_in_flight, batch=self._limits.sweep_batch
        )
        return [row[0] for row in rows]

    async def due_runs(self) -> list[str]:
        rows = await self._rows("due_runs", sweep_s=self._limits.sweep_s, batch=self._limits.sweep_batch)
        return [row[0] for row in rows]

    async def resolve_timers(self) -> None:
        async def work(connection: AsyncConnection) -> None:
            await connection.execute(_SQL["resolve_timers"], {"batch": self._limits.sweep_batch})

        await self._database.run("resolving timers", work)

    async def run_of(self, dataset_id: int) -> str | None:
        rows = await self._rows("run_of", dataset_id=dataset_id)
        return rows[0][0] if rows else None

    @asynccontextmanager
    async def sweep_turn(self, name: str) -> AsyncIterator[bool]:
        # Held by a transaction: Postgres ends it if this process freezes, so a turn can't be kept for ever.
        with database_errors(f"the {name} sweep's turn"):
            async with self._pool.connection() as connection, connection.transaction():
                cursor = await connection.execute(_SQL["try_turn"], {"key": advisory_key(f"sweep:{name}")})
                row = await cursor.fetchone()
                yield row is not None and row[0]

    def _stale_s(self, queue_empty: bool) -> float:
        """How old a message is that nobody took: with an empty queue it is lost, not late."""
        return self._limits.sweep_s if queue_empty else self._limits.session_ttl_s

    async def _rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        async def work(connection: AsyncConnection) -> list[tuple[Any, ...]]:
            return await (await connection.execute(_SQL[statement], values)).fetchall()

        return await self._database.run(f"settling.{statement}", work)


async def _resolve(connection: AsyncConnection, dataset_id: int, ended: tuple[Any, ...]) -> EndedDataset:
    run_id, op_key, key, namespace, state, on_row_error, *counts, at_ms, began_s = ended
    rows, duplicates, done, failures, cancelled, superseded, kept, left_out = counts
    value = {
        "dataset": key,
        "namespace": namespace,
        "dataset_id": dataset_id,
        "rows": rows,
        "completed": done,
        "failed": failures,
        "cancelled": cancelled,
        "duplicates": duplicates,
        "superseded": superseded,
        "kept": kept,
        "left_out": left_out,
    }
    first = await _first_failures(connection, dataset_id) if failures else []
    if first:
        await connection.execute(_ADD_LOGS, log_arrays(_failure_lines(run_id, value, first)))
    outcome = outcome_of(
        value,
        first,
        is_failed=state == DatasetState.FAILED,
        is_fail_fast=on_row_error == FAIL_FAST,
        at_ms=at_ms,
    )
    values = {"run_id": run_id, "op_key": op_key, "outcome": json_value.dumps(outcome).decode()}
    woken = await (await connection.execute(_SQL["resolve_boundary"], values)).fetchone()
    run_waits = woken is not None and woken[0] == RunState.WAITING
    return EndedDataset(
        run_id=run_id,
        dataset_id=dataset_id,
        run_waits=run_waits,
        key=key,
        state=DatasetState(state),
        counts={"rows": rows, "completed": done, "failed": failures, "cancelled": cancelled},
        began_s=began_s,
    )


async def _first_failures(connection: AsyncConnection, dataset_id: int) -> list[FailedRow]:
    values = {"dataset_id": dataset_id, "limit": FAILURES_NAMED}
    rows = await (await connection.execute(_SQL["first_failures"], values)).fetchall()
    return [FailedRow(row_key=row_key, error=error or {}) for row_key, error in rows]


def _failure_lines(run_id: str, value: dict[str, Any], first: list[FailedRow]) -> list[tuple[str, LogLine]]:
    scope = f"dataset:{value['namespace']}"
    return [
        (run_id, LogLine(scope=scope, n=n, level="warning", message=text, fields={}))
        for n, text in enumerate(failure_lines(value, first))
    ]
