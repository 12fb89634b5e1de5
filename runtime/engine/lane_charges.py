"""What a batch's outcomes cost the budgets of its calls. Pure."""

from collections.abc import Sequence

from runtime.engine.lane_book import Item
from runtime.engine.lane_flight import Flight
from runtime.engine.lane_outcomes import paid_each
from runtime.model.budget import Charge
from runtime.model.outcome import ItemCompleted, ItemFailed, ItemOutcome


def charges_of(flight: Flight) -> list[Charge]:
    """One per counted item. Freed only where the reply proves that nothing was charged; unknown is spent."""
    if not any(item.call.accounts for item in flight.items):
        return []
    paid = paid_each(flight, flight.outcomes)
    failed_each = _failed_each(flight, paid)
    return [
        charge_of(item, outcome, cost, failed_each)
        for item, outcome, cost in zip(flight.items, flight.outcomes, paid, strict=True)
        if item.call.accounts
    ]


def charge_of(item: Item, outcome: ItemOutcome, paid: float, failed_each: float | None) -> Charge:
    """`failed_each`: what the reply's bill leaves for each failed item, None if it has none."""
    credits_spent: float | None = None
    is_freed = False
    if isinstance(outcome, ItemCompleted):
        credits_spent = paid
    elif isinstance(outcome, ItemFailed):
        credits_spent = None if outcome.charged is False else failed_each
        is_freed = outcome.charged is False or (outcome.charged is None and failed_each == 0)
    return Charge(
        accounts=item.call.accounts,
        key=item.call.key,
        fence=item.fence,
        credits=credits_spent,
        is_freed=is_freed,
    )


def _failed_each(flight: Flight, paid: Sequence[float]) -> float | None:
    if flight.credits is None:
        return None
    failed = sum(
        isinstance(outcome, ItemFailed) and outcome.charged is not False for outcome in flight.outcomes
    )
    left = max(0.0, flight.credits - sum(paid))
    return left / failed if failed else 0.0
