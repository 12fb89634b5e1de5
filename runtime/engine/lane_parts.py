"""What the parts of a lane share: their ports, and one bounded way to wait for a store to come back."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import structlog

from runtime.errors import ServiceUnreachableError
from runtime.policy.limits import Limits
from runtime.ports import (
    BudgetStore,
    Clock,
    EndedRuns,
    EventSink,
    Fault,
    Inbox,
    LeaseStore,
    Pacer,
    ReceiptStore,
    Requests,
    ToolCatalog,
    no_events,
)

T = TypeVar("T")
log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneParts:
    session_id: str
    leases: LeaseStore
    receipts: ReceiptStore
    inbox: Inbox
    pacer: Pacer
    catalog: ToolCatalog
    requests: Requests
    limits: Limits
    fault: Fault
    clock: Clock
    origin: str = ""  # of the execution API
    runs: EndedRuns | None = None
    budgets: BudgetStore | None = None
    events: EventSink = no_events

    async def until_reachable(self, action: str, work: Callable[[], Awaitable[T]], bound_ms: float) -> T:
        """Do `work` again while its store can't be reached, for `bound_ms`; then raise what it raised."""
        started_ms = self.clock.now_ms()
        while True:
            try:
                return await work()
            except ServiceUnreachableError as error:
                waited_ms = self.clock.now_ms() - started_ms
                log.warning("store unreachable", action=action, waited_ms=round(waited_ms), error=str(error))
                if waited_ms >= bound_ms:
                    raise
            await self.clock.sleep(self.limits.lane_retry_ms)
