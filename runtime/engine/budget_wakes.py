"""Who waited for budget goes on when there is room: raised, given back, or cheaper than it was held for."""

import structlog

from runtime.engine.settling import Settling
from runtime.model.budget import BudgetWaits
from runtime.ports import BudgetStore

log = structlog.get_logger()


class BudgetWakes:
    """A sweep. No more rows are woken at once than find room, as far as is known; the next round wakes more."""

    def __init__(self, budgets: BudgetStore, settling: Settling) -> None:
        self._budgets = budgets
        self._settling = settling

    async def sweep(self) -> int:
        """How many accounts had room for somebody."""
        found = await self._budgets.waiting()
        for waits in found:
            await self._wake(waits)
        return len(found)

    async def _wake(self, waits: BudgetWaits) -> None:
        bodies = await self._budgets.wake_bodies(waits.run_ids)
        pages = 0
        for run_id in waits.run_ids:
            pages = await self._settling.wake_budget(run_id, waits.rows)
            if pages:
                break
        if bodies or pages:
            log.info(
                "budget has room", action="budget.wake", account=waits.account, bodies=bodies, pages=pages
            )
        await self._budgets.woken(waits)
