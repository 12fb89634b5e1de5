"""Rows that wait: woken when their wait is over, and the pages that they keep out of the window or in it.

Locks are taken as everywhere: slices, rows, waits, pages, datasets. Each statement looks after its locks are held.
"""

from collections import defaultdict
from typing import Any

from psycopg import AsyncConnection

from runtime.model.row_wait import WaitKind, WokenPage
from runtime.policy.limits import Limits
from runtime.postgres_store.named import load
from runtime.postgres_store.pool import Database

_SQL = load("waiting")


class Waiting:
    """The statements about rows that wait."""

    def __init__(self, database: Database, limits: Limits) -> None:
        self._database = database
        self._limits = limits

    async def wake_due(self) -> list[WokenPage]:
        """Wake a batch of rows whose wait is over; the pages that they are in."""
        return await self._wake(await self._candidates("due"), kind="")

    async def wake_kind(self, run_id: str, kind: WaitKind, most: int | None = None) -> list[WokenPage]:
        """Wake a batch of a run's rows that wait for this, at most `most`; the pages that they are in."""
        found = await self._candidates("of_run", most, run_id=run_id, kind=kind.value)
        return await self._wake(found, kind=kind.value)

    async def park(self, dataset_id: int, page: int) -> None:
        """The page leaves the window if the rest of its rows waits for sleeps and events alone."""
        values = {"dataset_id": dataset_id, "pages": [page]}

        async def work(connection: AsyncConnection) -> None:
            async with connection.pipeline(), connection.transaction():
                await connection.execute(_SQL["lock_pages"], values)
                await connection.execute(_SQL["park"], values)

        await self._database.run("parking a page", work)

    async def _candidates(
        self, statement: str, most: int | None = None, **values: Any
    ) -> dict[tuple[str, int], list[int]]:
        rows = self._limits.wake_rows
        values |= {"batch": rows if most is None else min(rows, most)}

        async def work(connection: AsyncConnection) -> list[tuple[Any, ...]]:
            return await (await connection.execute(_SQL[statement], values)).fetchall()

        found: dict[tuple[str, int], list[int]] = defaultdict(list)
        for run_id, dataset_id, position in await self._database.run("reading rows that wait", work):
            found[run_id, dataset_id].append(position)
        return found

    async def _wake(self, found: dict[tuple[str, int], list[int]], *, kind: str) -> list[WokenPage]:
        woken: list[WokenPage] = []
        for (run_id, dataset_id), positions in found.items():
            values = {"dataset_id": dataset_id, "positions": positions, "kind": kind}

            async def work(connection: AsyncConnection, values: dict[str, Any] = values) -> list[int]:
                async with connection.transaction():
                    return await _wake_dataset(connection, values)

            pages = await self._database.run("waking rows", work)
            woken += [WokenPage(run_id=run_id, dataset_id=dataset_id, page=page) for page in pages]
        return woken


async def _wake_dataset(connection: AsyncConnection, values: dict[str, Any]) -> list[int]:
    locked = await (await connection.execute(_SQL["lock_slices"], values)).fetchall()
    held = {"pages": [page for page, _ in locked], "slices": [number for _, number in locked]}
    woken = await (await connection.execute(_SQL["wake"], values | held)).fetchall()
    pages = {"dataset_id": values["dataset_id"], "pages": [page for (page,) in woken]}
    if woken:
        async with connection.pipeline():
            await connection.execute(_SQL["lock_pages"], pages)
            await connection.execute(_SQL["unpark"], pages)
    return pages["pages"]
