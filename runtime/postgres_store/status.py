"""Reading how runs stand: for the CLI, the client and tests; decides nothing."""

from typing import Any

from psycopg import AsyncConnection

from runtime.model.dataset import DatasetState
from runtime.model.lineage import RUN_ID_CHARS
from runtime.model.run import RunState
from runtime.model.status import (
    ChildCounts,
    DatasetStatus,
    RowFailure,
    RunStatus,
    SheetRow,
    StoredLog,
    ToolUsage,
)
from runtime.policy.limits import Limits
from runtime.postgres_store.named import load
from runtime.postgres_store.pool import Database, Pool

_SQL = load("status")
_CHILDREN = load("children")["of_run"]


class PostgresStatus:
    """Read-only views of runs, sheets and failures."""

    def __init__(self, pool: Pool, limits: Limits) -> None:
        self._database = Database(pool, limits)
        self._limits = limits

    async def run_status(self, run_id: str) -> RunStatus | None:
        """The run, its datasets and usage; None if unknown."""
        values = {"run_id": run_id}

        async def work(connection: AsyncConnection) -> tuple[Any, list[Any], list[Any]]:
            async with connection.pipeline():
                run = await connection.execute(_SQL["run"], values)
                datasets = await connection.execute(_SQL["datasets"], values)
                usage = await connection.execute(_SQL["usage"], values)
                return await run.fetchone(), await datasets.fetchall(), await usage.fetchall()

        run, datasets, usage = await self._database.run("reading a run", work)
        return None if run is None else _run_status(run, datasets, usage)

    async def children(self, run_id: str) -> ChildCounts:
        """Child plays and child runs of a run, as far as they are stored."""
        values = {"run_id": run_id, "id_chars": RUN_ID_CHARS}

        async def work(connection: AsyncConnection) -> tuple[Any, ...] | None:
            return await (await connection.execute(_CHILDREN, values)).fetchone()

        found = await self._database.run("counting child plays", work)
        if found is None:
            return ChildCounts()
        ok, failed, runs, runs_ended, runs_failed = found
        return ChildCounts(ok=ok, failed=failed, runs=runs, runs_ended=runs_ended, runs_failed=runs_failed)

    async def recent(self, limit: int) -> list[str]:
        """Ids of the newest runs."""
        return [row[0] for row in await self._rows("recent", limit=limit)]

    async def sheet(
        self, org_id: str, play: str, namespace: str, *, after: str = "", limit: int | None = None
    ) -> list[SheetRow]:
        """At most `limit` rows of a sheet in key order, beginning after key `after`."""
        bound = self._limits.client_sheet_rows if limit is None else limit
        rows = await self._rows(
            "sheet", org_id=org_id, play=play, namespace=namespace, after=after, limit=bound
        )
        return [
            SheetRow(
                row_key=row_key,
                data=data,
                cell_meta=cell_meta,
                run_id=run_id,
                write_version=write_version,
                updated_at=updated_at,
            )
            for row_key, data, cell_meta, run_id, write_version, updated_at in rows
        ]

    async def failures(
        self, dataset_id: int, limit: int | None = None, *, after: int = -1
    ) -> list[RowFailure]:
        """The first failed rows of a dataset beyond position `after`."""
        bound = self._limits.failures_kept if limit is None else limit
        rows = await self._rows("failures", dataset_id=dataset_id, after=after, limit=bound)
        return [RowFailure(position=position, row_key=key, error=error) for position, key, error in rows]

    async def logs(self, run_id: str, limit: int | None = None) -> list[StoredLog]:
        """A run's first log lines."""
        bound = self._limits.status_logs if limit is None else limit
        rows = await self._rows("logs", run_id=run_id, limit=bound)
        return [
            StoredLog(scope=scope, n=n, level=level, message=message, fields=fields, at=at)
            for scope, n, level, message, fields, at in rows
        ]

    async def _rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        async def work(connection: AsyncConnection) -> list[tuple[Any, ...]]:
            return await (await connection.execute(_SQL[statement], values)).fetchall()

        return await self._database.run(f"status.{statement}", work)


def _run_status(
    run: tuple[Any, ...], datasets: list[tuple[Any, ...]], usage: list[tuple[Any, ...]]
) -> RunStatus:
    (
        run_id,
        org_id,
        play,
        value,
        state,
        attempt,
        result,
        error,
        created_at,
        started_at,
        ended_at,
        now,
        options,
    ) = run
    return RunStatus(
        run_id=run_id,
        org_id=org_id,
        play=play,
        input=value,
        state=RunState(state),
        attempt=attempt,
        result=result,
        error=error,
        datasets=tuple(_dataset_status(row) for row in datasets),
        usage=tuple(_tool_usage(row) for row in usage),
        created_at=created_at,
        started_at=started_at,
        ended_at=ended_at,
        now=now,
        options=options,
    )


def _dataset_status(row: tuple[Any, ...]) -> DatasetStatus:
    (
        dataset_id,
        key,
        namespace,
        state,
        columns,
        rows,
        duplicates,
        *counts,
        created_at,
        ended_at,
        kept,
        left_out,
    ) = row
    done, failures, cancelled, superseded, pages_seeded, pages_total, pages_settled = counts
    return DatasetStatus(
        dataset_id=dataset_id,
        key=key,
        namespace=namespace,
        state=DatasetState(state),
        columns=tuple(columns),
        rows=rows,
        duplicates=duplicates,
        completed=done,
        failed=failures,
        cancelled=cancelled,
        superseded=superseded,
        kept=kept,
        left_out=left_out,
        pages_seeded=pages_seeded,
        pages_total=pages_total,
        pages_settled=pages_settled,
        created_at=created_at,
        ended_at=ended_at,
    )


def _tool_usage(row: tuple[Any, ...]) -> ToolUsage:
    tool, items, batches, capacity, cached, followed, paid = row
    return ToolUsage(
        tool=tool,
        items=items,
        batches=batches,
        capacity=capacity,
        cached=cached,
        followed=followed,
        credits=paid,
    )
