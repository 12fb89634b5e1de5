"""Rows of datasets, read in input order."""

from typing import Any

from psycopg import AsyncConnection

from runtime.model.row import RowState
from runtime.model.stored_row import StoredRow, Stretch
from runtime.policy.limits import Limits
from runtime.policy.reading import next_rows
from runtime.policy.sheet_views import stored_columns
from runtime.postgres_store.named import load
from runtime.postgres_store.pool import Database, Pool

_SQL = load("reading")


class PostgresReads:
    """SheetReads over Postgres."""

    def __init__(self, pool: Pool, limits: Limits) -> None:
        self._database = Database(pool, limits)
        self._limits = limits

    async def rows(self, stretch: Stretch) -> list[StoredRow] | None:
        return await self._database.run("reading a dataset's rows", lambda on: self._read(on, stretch))

    async def columns(self, dataset_id: int) -> tuple[str, ...]:
        """A dataset's stored columns: of its input, then those that were computed."""

        async def work(connection: AsyncConnection) -> tuple[Any, ...] | None:
            return await (await connection.execute(_SQL["columns"], {"dataset_id": dataset_id})).fetchone()

        found = await self._database.run("reading a dataset's columns", work)
        return () if found is None else tuple(stored_columns(*found))

    async def _read(self, connection: AsyncConnection, stretch: Stretch) -> list[StoredRow] | None:
        values: dict[str, Any] = {"dataset_id": stretch.dataset_id}
        where = await (await connection.execute(_SQL["dataset"], values)).fetchone()
        if where is None:
            return None
        states = [RowState.COMPLETED, RowState.FAILED] if stretch.failed else [RowState.COMPLETED]
        values |= dict(zip(("org_id", "play", "namespace", "run_id"), where, strict=True))
        values |= {"states": [state.value for state in states], "after": stretch.after, "skip": stretch.skip}
        if stretch.from_end:
            cursor = await connection.execute(_SQL["last_rows"], values | {"limit": stretch.limit})
            return [_row(row) for row in await cursor.fetchall()]
        found: list[StoredRow] = []
        size, most = 0, self._limits.handle_page_bytes
        while limit := next_rows(rows_read=len(found), bytes_read=size, limit=stretch.limit, max_bytes=most):
            cursor = await connection.execute(_SQL["rows"], values | {"limit": limit})
            rows = [_row(row) for row in await cursor.fetchall()]
            found += rows
            size += sum(row.size_bytes for row in rows)
            if len(rows) < limit:
                break
            values |= {"after": rows[-1].position, "skip": 0}
        return found


def _row(row: tuple[Any, ...]) -> StoredRow:
    position, row_key, state, data, cell_meta = row
    return StoredRow(
        position=position, row_key=row_key, state=RowState(state), data=data, cell_meta=cell_meta
    )
