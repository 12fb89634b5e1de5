"""Winding an ended dataset down: its open rows under no live claim end as cancelled, page by page.

The transaction that ended the dataset has decided; this only writes it down, a bounded number of pages at a time.
"""

from collections.abc import Sequence

from psycopg import AsyncConnection

from runtime.policy.limits import Limits
from runtime.postgres_store.named import load
from runtime.postgres_store.pool import Database

_SQL = load("winding")


async def wind_datasets(database: Database, limits: Limits, dataset_ids: Sequence[int]) -> None:
    """Wind the first pages of each dataset; sweeps do the rest."""
    for dataset_id in dataset_ids:
        values = {"dataset_id": dataset_id, "pages": limits.wind_pages}

        async def pages_of(connection: AsyncConnection, values: dict[str, int] = values) -> list[int]:
            return [row[0] for row in await (await connection.execute(_SQL["pages"], values)).fetchall()]

        pages = await database.run("reading pages of an ended dataset", pages_of)
        await wind_pages(database, dataset_id, pages)


async def wind_pages(database: Database, dataset_id: int, pages: Sequence[int]) -> bool:
    """Cancel what no live session holds in these pages; True if any of them is settled by this call."""
    values = {"dataset_id": dataset_id, "pages": list(pages)}

    async def work(connection: AsyncConnection) -> bool:
        async with connection.pipeline(), connection.transaction():
            await connection.execute(_SQL["close_slices"], values)
            await connection.execute(_SQL["cancel_rows"], values)
            await connection.execute(_SQL["cancel_boundaries"], values)
            await connection.execute(_SQL["drop_waits"], values)
            cursor = await connection.execute(_SQL["settle_pages"], values)
        return cursor.rowcount > 0

    return bool(pages) and await database.run("winding pages down", work)
