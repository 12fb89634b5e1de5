"""What sheets have of rows that are about to run."""

from collections.abc import Sequence
from typing import Any

from psycopg import AsyncConnection

from runtime.model.cell import StoredCells
from runtime.model.dataset import DatasetFacts
from runtime.policy.limits import Limits
from runtime.postgres_store.named import load
from runtime.postgres_store.pool import Database

_SQL = load("stored_rows")


async def read_stored_rows(
    database: Database, limits: Limits, facts: DatasetFacts, row_keys: Sequence[str]
) -> dict[str, StoredCells]:
    """By row key, those that a run brought to an end; each read is bounded in bytes."""
    found: dict[str, StoredCells] = {}
    left = list(row_keys)
    while left:
        values = {
            "org_id": facts.org_id,
            "play": facts.play,
            "namespace": facts.namespace,
            "row_keys": left,
            "read_bytes": limits.read_bytes,
        }

        async def work(connection: AsyncConnection, values: dict[str, Any] = values) -> list[tuple[Any, ...]]:
            return await (await connection.execute(_SQL["stored_rows"], values)).fetchall()

        rows = await database.run("reading stored cells", work)
        found.update({key: StoredCells(data=data, cell_meta=meta) for key, data, meta, _ in rows})
        is_all = not rows or len(rows) == rows[0][3]
        left = [] if is_all else [key for key in left if key not in found]
    return found
