"""The contract's world over the stores in memory."""

from typing import Any

from runtime.model.dataset import DatasetState
from runtime.policy.limits import Limits
from runtime.testing import MemoryStores
from tests.contract.stores_world import LIMITS, RowLook, StoresWorld


def memory_world(limits: Limits = LIMITS) -> StoresWorld:
    clock = [1_000.0]
    stores = MemoryStores(lambda: clock[0], limits)
    state = stores.state

    async def age(seconds: float) -> None:
        clock[0] += seconds

    async def rows(dataset_id: int) -> dict[int, RowLook]:
        found = state.datasets[dataset_id].rows
        return {at: RowLook(state=row.state, superseded=row.superseded) for at, row in found.items()}

    async def sheet(org_id: str, play: str, namespace: str) -> dict[str, Any]:
        rows = state.sheets.get((org_id, play, namespace), {})
        return {key: row["data"] for key, row in rows.items() if row["state"] != "pending"}

    async def dataset_state(dataset_id: int) -> DatasetState:
        return state.datasets[dataset_id].state

    async def usage_items(run_id: str) -> int:
        return sum(one.items for one in state.usage if one.run_id == run_id)

    async def log_messages(run_id: str) -> list[str]:
        return [line.message for (of, _, _), line in sorted(state.logs.items()) if of == run_id]

    return StoresWorld(
        sessions=stores.sessions,
        runs=stores.runs,
        datasets=stores.datasets,
        settling=stores.settling,
        slices=stores.slices,
        reads=stores.reads,
        receipts=stores.receipts,
        budgets=stores.budgets,
        waits=stores.waits,
        age=age,
        rows=rows,
        sheet=sheet,
        dataset_state=dataset_state,
        usage_items=usage_items,
        log_messages=log_messages,
    )
