"""Budgets of the runs that a lane works for: room is taken before a call is queued, and settled with its receipt."""

from collections.abc import Sequence

import structlog

from runtime.engine.lane_book import Item, LaneBook
from runtime.engine.lane_flight import Flight
from runtime.engine.lane_parts import LaneParts
from runtime.engine.lane_spec import BatchSpec, SpecKey, spec_key
from runtime.errors import BudgetExceededError
from runtime.model.budget import BudgetAsk, BudgetRefusal
from runtime.model.call import Answer, AnswerState
from runtime.policy import budgeting

log = structlog.get_logger()


class LaneBudget:
    """Calls of runs without caps pass untouched and cost no statement."""

    def __init__(self, parts: LaneParts, book: LaneBook) -> None:
        self._parts = parts
        self._book = book

    async def admit(self, items: Sequence[Item], specs: dict[SpecKey, BatchSpec]) -> list[Item]:
        """The items that found room. The others' runs are told; whoever else waits for them asks anew."""
        parts, budgets = self._parts, self._parts.budgets
        counted = [item for item in items if item.call.accounts]
        if budgets is None or not counted:
            return list(items)
        asks = [_ask(item, specs[spec_key(item.call)]) for item in counted]
        judged = await parts.until_reachable(
            "lane.budget", lambda: budgets.reserve(asks), parts.limits.lane_wait_ms
        )
        refused: dict[int, BudgetRefusal] = {}
        for item, refusal in zip(counted, judged, strict=True):
            item.is_reserved = refusal is None
            if refusal is not None:
                refused[id(item)] = refusal
        if refused:
            await self._refuse([(item, refused[id(item)]) for item in counted if id(item) in refused])
        return [item for item in items if id(item) not in refused]

    async def take_retry(self, flight: Flight) -> BudgetRefusal | None:
        """Count a repeated request in all budgets that its calls are counted in; or who has no retry left."""
        parts, budgets = self._parts, self._parts.budgets
        accounts = sorted({account for item in flight.items for account in item.call.accounts})
        if budgets is None or not accounts:
            return None
        return await parts.until_reachable(
            "lane.budget", lambda: budgets.take_retry(accounts), parts.limits.lane_wait_ms
        )

    async def _refuse(self, refused: Sequence[tuple[Item, BudgetRefusal]]) -> None:
        log.info(
            "calls without budget",
            action="lane.budget",
            calls=len(refused),
            accounts=sorted({refusal.account for _, refusal in refused})[:10],
        )
        await self._book.answer_unsent([(item, self._answer(item, refusal)) for item, refusal in refused])

    def _answer(self, item: Item, refusal: BudgetRefusal) -> Answer:
        call = item.call
        left_ms = budgeting.short_ms(refusal, self._parts.limits)
        state = AnswerState.OVER_BUDGET if left_ms else AnswerState.FAILED
        error = exceeded(refusal, call.tool, left_ms).to_payload()
        return Answer(key=call.key, state=state, error=error, run_id=call.run_id, until_ms=left_ms or None)


def exceeded(refusal: BudgetRefusal, tool: str, left_ms: float) -> BudgetExceededError:
    """Why a call was not made, and what goes on when."""
    raise_it = f"`playlane budget {refusal.account} --{refusal.cap.replace('_', '-')} N`"
    follows = (
        f"it waits for {raise_it}, or for what others give back, at most {left_ms / 86_400_000:.2g} days"
        if left_ms
        else f"it has waited its whole time for more; raise it with {raise_it} and run again"
    )
    return BudgetExceededError(
        f"{tool} was not called: {refusal.describe()}; {follows}",
        tool=tool,
        retryable=True,
        details={
            "account": refusal.account,
            "cap": refusal.cap,
            "used": refusal.used,
            "most": refusal.most,
            "needs": refusal.credits,
        },
    )


def _ask(item: Item, spec: BatchSpec) -> BudgetAsk:
    return BudgetAsk(
        accounts=item.call.accounts,
        key=item.call.key,
        fence=item.fence,
        credits=budgeting.price(spec.metadata),
    )
