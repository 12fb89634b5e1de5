"""What waits for a row worker, run by run."""

from typing import Any

from psycopg import AsyncConnection

from runtime.model.slice import SUSPECTS_FROM, SliceId, SliceOfRun
from runtime.policy.limits import Limits
from runtime.postgres_store.named import load
from runtime.postgres_store.pool import Database, Pool

_SQL = load("slice_turns")


class PostgresWaitingSlices:
    """WaitingSlices over Postgres."""

    def __init__(self, pool: Pool, limits: Limits) -> None:
        self._database = Database(pool, limits)

    async def waiting_slices(self, datasets: int) -> list[SliceOfRun]:
        values = {"datasets": datasets, "suspects_from": SUSPECTS_FROM}

        async def work(connection: AsyncConnection) -> list[tuple[Any, ...]]:
            return await (await connection.execute(_SQL["waiting_slices"], values)).fetchall()

        return [
            SliceOfRun(run_id=run_id, id=SliceId(dataset_id=dataset_id, page=page, slice=number))
            for run_id, dataset_id, page, number in await self._database.run("looking for slices", work)
        ]
