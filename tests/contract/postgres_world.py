"""The contract's world over real Postgres; time passes by moving every stored moment back."""

from typing import Any

from runtime.model.dataset import DatasetState
from runtime.model.row import RowState
from runtime.policy.limits import Limits
from runtime.postgres_store.budgets import PostgresBudgets
from runtime.postgres_store.datasets import PostgresDatasets
from runtime.postgres_store.pool import Pool
from runtime.postgres_store.reading import PostgresReads
from runtime.postgres_store.receipts import PostgresReceipts
from runtime.postgres_store.runs import PostgresRuns
from runtime.postgres_store.sessions import PostgresSessions
from runtime.postgres_store.settling import PostgresSettling
from runtime.postgres_store.slices import PostgresSlices
from runtime.postgres_store.status import PostgresStatus
from runtime.postgres_store.waits import PostgresWaits
from tests.contract.stores_world import LIMITS, RowLook, StoresWorld

_AGE = b"""
with a as (update sessions set expires_at = expires_at - %(s)s * interval '1 second'),
b as (
  update slices set sent_at = sent_at - %(s)s * interval '1 second', taken_at = taken_at - %(s)s * interval '1 second'),
c as (
  update runs set hinted_at = hinted_at - %(s)s * interval '1 second',
    active_at = active_at - %(s)s * interval '1 second',
    unavailable_since = unavailable_since - %(s)s * interval '1 second',
    unavailable_at = unavailable_at - %(s)s * interval '1 second',
    created_at = created_at - %(s)s * interval '1 second'),
bb as (
  update budgets set short_since = short_since - %(s)s * interval '1 second',
    refused_at = refused_at - %(s)s * interval '1 second'),
w as (update row_waits set due_at = due_at - %(s)s * interval '1 second'),
x as (update row_boundaries set due_at = due_at - %(s)s * interval '1 second'),
y as (update delivered_events set created_at = created_at - %(s)s * interval '1 second')
update boundaries set due_at = due_at - %(s)s * interval '1 second'
"""


def postgres_world(pool: Pool, limits: Limits = LIMITS) -> StoresWorld:
    status = PostgresStatus(pool, limits)

    async def query(statement: bytes, *values: Any) -> list[tuple[Any, ...]]:
        async with pool.connection() as connection:
            return await (await connection.execute(statement, values)).fetchall()

    async def age(seconds: float) -> None:
        async with pool.connection() as connection:
            await connection.execute(_AGE, {"s": float(seconds)})

    async def rows(dataset_id: int) -> dict[int, RowLook]:
        found = await query(
            b"select position, state, superseded from run_rows where dataset_id = %s", dataset_id
        )
        return {at: RowLook(state=RowState(state), superseded=superseded) for at, state, superseded in found}

    async def sheet(org_id: str, play: str, namespace: str) -> dict[str, Any]:
        return {row.row_key: row.data for row in await status.sheet(org_id, play, namespace)}

    async def dataset_state(dataset_id: int) -> DatasetState:
        return DatasetState(
            (await query(b"select state from datasets where dataset_id = %s", dataset_id))[0][0]
        )

    async def usage_items(run_id: str) -> int:
        found = await status.run_status(run_id)
        return sum(one.items for one in found.usage) if found else 0

    async def log_messages(run_id: str) -> list[str]:
        return [
            line.message for line in sorted(await status.logs(run_id), key=lambda line: (line.scope, line.n))
        ]

    return StoresWorld(
        sessions=PostgresSessions(pool, limits),
        runs=PostgresRuns(pool, limits),
        datasets=PostgresDatasets(pool, limits),
        settling=PostgresSettling(pool, limits),
        slices=PostgresSlices(pool, limits),
        reads=PostgresReads(pool, limits),
        receipts=PostgresReceipts(pool, limits),
        budgets=PostgresBudgets(pool, limits),
        waits=PostgresWaits(pool, limits),
        age=age,
        rows=rows,
        sheet=sheet,
        dataset_state=dataset_state,
        usage_items=usage_items,
        log_messages=log_messages,
    )
