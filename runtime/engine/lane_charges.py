"""What a batch's outcomes cost the budgets of its calls. Pure."""

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
    return [
        _charge(item, outcome, cost, is_billed=flight.credits is not None)
        for item, outcome, cost in zip(flight.items, flight.outcomes, paid, strict=True)
        if item.call.accounts
    ]


def _charge(item: Item, outcome: ItemOutcome, paid: float, *, is_billed: bool) -> Charge:
    """`is_billed`: the reply says what it cost as a whole."""
    credits_spent: float | None = None
    is_freed = False
    if isinstance(outcome, ItemCompleted):
        credits_spent = paid
    elif isinstance(outcome, ItemFailed):
        is_known = is_billed or outcome.credits is not None
        is_freed = outcome.charged is False or (outcome.charged is None and is_known and not paid)
        credits_spent = None if outcome.charged is False or not is_known else paid
    return Charge(
        accounts=item.call.accounts,
        key=item.call.key,
        fence=item.fence,
        credits=credits_spent,
        is_freed=is_freed,
    )
