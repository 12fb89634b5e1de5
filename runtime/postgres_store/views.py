"""One SQL view per sheet, so that people read it like a table."""

from collections.abc import Sequence
from typing import Any

from psycopg import AsyncConnection, sql

from runtime.policy.identity import advisory_key
from runtime.policy.limits import Limits
from runtime.policy.sheet_views import Named, added_columns, stored_columns, view_name
from runtime.postgres_store.named import load
from runtime.postgres_store.pool import Database, Pool

_SQL = load("views")


class PostgresViews:
    """SheetViews over Postgres. A view only ever gains columns, so what reads it goes on working."""

    def __init__(self, pool: Pool, limits: Limits) -> None:
        self._database = Database(pool, limits)
        self._limits = limits

    async def refresh(self, dataset_id: int) -> None:
        async def work(connection: AsyncConnection) -> None:
            async with connection.transaction():
                await self._refresh(connection, dataset_id)

        await self._database.run("making a sheet's view", work)

    async def _refresh(self, connection: AsyncConnection, dataset_id: int) -> None:
        found = await (await connection.execute(_SQL["dataset"], {"dataset_id": dataset_id})).fetchone()
        if found is None:
            return
        org_id, play, namespace, inputs, computed = found
        view = view_name(org_id, play, namespace)
        sheet = {"org_id": org_id, "play": play, "namespace": namespace}
        await connection.execute(_SQL["lock"], {"key": advisory_key(f"view:{view}")})
        known: list[Named] = await (await connection.execute(_SQL["known"], sheet)).fetchall()
        added = added_columns(known, stored_columns(inputs, computed), most=self._limits.sheet_columns)
        if added:
            values = {"names": [name for name, _ in added], "identifiers": [named for _, named in added]}
            await connection.execute(_SQL["add"], sheet | values | {"first": len(known)})
        elif (await (await connection.execute(_SQL["exists"], {"view": view})).fetchone()) == (True,):
            return
        await connection.execute(_statement(view, sheet, [*known, *added]))


def _statement(view: str, sheet: dict[str, Any], columns: Sequence[Named]) -> sql.Composed:
    shown = [
        sql.SQL("data ->> {} as {}").format(sql.Literal(name), sql.Identifier(identifier))
        for name, identifier in columns
    ]
    own = sql.SQL(
        'row_key as "_row_key", state as "_state", run_id as "_run_id", updated_at as "_updated_at"'
    )
    return sql.SQL(
        "create or replace view {} as select {} from sheet_rows where org_id = {} and play = {} and namespace = {}"
    ).format(
        sql.Identifier(view),
        sql.SQL(", ").join([own, *shown]),
        sql.Literal(sheet["org_id"]),
        sql.Literal(sheet["play"]),
        sql.Literal(sheet["namespace"]),
    )
