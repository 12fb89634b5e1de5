"""From outcomes to what is stored: one receipt per item, and what the batch used. Pure."""

from collections.abc import Sequence

from runtime.engine.lane_book import Item
from runtime.engine.lane_flight import Flight
from runtime.errors import ToolOutcomeUnknownError
from runtime.model import json_value, tool_output
from runtime.model.call import Usage
from runtime.model.failure import QUOTA_CODES, Failure, FailureClass
from runtime.model.outcome import ItemCompleted, ItemFailed, ItemOutcome, ItemUnknown
from runtime.model.physical_request import PhysicalReply
from runtime.model.receipt import Receipt, ReceiptState
from runtime.policy import quota
from runtime.policy.limits import Limits

_NOTHING = 1e-9  # credits: what adding up fractions leaves


def failed_outcomes(
    failure: Failure, count: int, *, terminal: bool, code: str | None = None
) -> tuple[ItemOutcome, ...]:
    """The whole request failed: the same outcome for every item."""
    outcome = ItemFailed(
        code=code or failure.code,
        message=failure.describe(),
        retryable=not terminal,
        terminal=terminal,
        charged=False if failure.not_charged else None,
        details=failure.details(),
    )
    return (outcome,) * count


def no_payload(flight: Flight, error: Exception) -> tuple[ItemOutcome, ...]:
    """The batch strategy failed, so nothing was sent: its author must mend it, and a later run may ask again."""
    strategy = flight.spec.strategy
    outcome = ItemFailed(
        code="bad_batch_strategy",
        message=f"batch strategy {strategy.name} made no payload for {len(flight.items)} calls ({error!r:.200}); "
        "nothing was sent",
        retryable=False,
        terminal=False,
        charged=False,
    )
    return (outcome,) * len(flight.items)


def exhausted(
    flight: Flight, outcomes: Sequence[ItemOutcome], reply: PhysicalReply, limits: Limits
) -> Failure | None:
    """What items of a good reply say of the provider's quota, as a request refused for it would; the latest moment."""
    spent = [one for one in outcomes if isinstance(one, ItemFailed) and one.code.lower() in QUOTA_CODES]
    if not spent:
        return None
    untils = [quota.moment(one.details.get("retry_at")) for one in spent]
    until = max((one for one in untils if one is not None), default=None)
    operation = flight.spec.strategy.operation
    return Failure(
        failure_class=FailureClass.PROVIDER_EXHAUSTED,
        operation=operation,
        message=f"{operation}: {len(spent)} of {len(outcomes)} items found the provider's quota used up",
        code=FailureClass.PROVIDER_EXHAUSTED,
        tool=flight.spec.metadata.tool,
        attempt=flight.sends,
        retry_after_ms=quota.wait_ms(until, reply.replied_at, limits),
        retry_at=None if until is None else quota.moment_text(until),
    )


def receipts_of(flight: Flight, limits: Limits) -> list[Receipt]:
    """One receipt per item, aligned."""
    return [
        _receipt(item, outcome, limits, is_fenced=flight.spec.is_fenced)
        for item, outcome in zip(flight.items, flight.outcomes, strict=True)
    ]


def usage_of(flight: Flight, outcomes: Sequence[ItemOutcome]) -> list[Usage]:
    """Items and credits per run and tool; the batch itself counts for its first member."""
    paid = paid_each(flight, outcomes)
    items: dict[tuple[str, str], int] = {}
    spent: dict[tuple[str, str], float] = {}
    for item, cost in zip(flight.items, paid, strict=True):
        owner = (item.call.run_id, item.call.tool)
        items[owner] = items.get(owner, 0) + 1
        spent[owner] = spent.get(owner, 0.0) + cost
    first = next(iter(items))
    return [
        Usage(
            run_id=owner[0],
            tool=owner[1],
            items=count,
            batches=1 if owner == first else 0,
            capacity=flight.spec.strategy.max_batch_size if owner == first else 0,
            credits=spent[owner],
        )
        for owner, count in items.items()
    ]


def paid_each(flight: Flight, outcomes: Sequence[ItemOutcome]) -> list[float]:
    """What each item cost: as the item says, else its share of the reply's, else as declared.

    A failed item costs the same if it was charged; where nobody says so, what the others leave of the reply's.
    """
    charged = [_is_charged(outcome) for outcome in outcomes]
    share = flight.spec.metadata.credits_per_item
    if flight.credits is not None:
        share = flight.credits / max(charged.count(True), 1)
    paid = [
        _own_credits(outcome, share) if is_charged else 0.0
        for outcome, is_charged in zip(outcomes, charged, strict=True)
    ]
    left = 0.0 if flight.credits is None else flight.credits - sum(paid)
    if None in charged and left > _NOTHING:
        each = left / charged.count(None)
        paid = [each if is_charged is None else cost for cost, is_charged in zip(paid, charged, strict=True)]
    return paid


def _is_charged(outcome: ItemOutcome) -> bool | None:
    if isinstance(outcome, ItemFailed):
        return outcome.charged
    return isinstance(outcome, ItemCompleted)


def _own_credits(outcome: ItemOutcome, share: float) -> float:
    own = None if isinstance(outcome, ItemUnknown) else outcome.credits
    return share if own is None else own


def _receipt(item: Item, outcome: ItemOutcome, limits: Limits, *, is_fenced: bool) -> Receipt:
    call = item.call
    output, error, terminal = None, None, False
    if isinstance(outcome, ItemCompleted) and len(outcome.output_json) > limits.receipt_output_bytes:
        outcome = _too_large(outcome.output_json, limits)
    if isinstance(outcome, ItemCompleted):
        state, output = ReceiptState.COMPLETED, outcome.output_json
    elif isinstance(outcome, ItemFailed):
        state, error, terminal = ReceiptState.FAILED, outcome.payload(call.tool), outcome.terminal
    else:
        # What may have happened once must not happen twice: only a forced call asks again.
        state, error, terminal = ReceiptState.UNKNOWN, _unknown(outcome.reason, call.tool), is_fenced
    return Receipt(
        key=call.key,
        org_id=call.org_id,
        tool=call.tool,
        run_id=call.run_id,
        state=state,
        fence=item.fence,
        output=output,
        error=error,
        terminal=terminal,
    )


def _too_large(output: bytes, limits: Limits) -> ItemFailed:
    size = len(output)
    path, most = json_value.heaviest(json_value.loads(tool_output.data_text(output)), "$")
    return ItemFailed(
        code="output_too_large",
        message=f"output at $ is {size} bytes of JSON, more than the {limits.receipt_output_bytes} that are kept"
        f" ({most} of them at {path[:200]}); it was paid, and it is final",
        charged=True,
    )


def _unknown(reason: str, tool: str) -> dict[str, object]:
    return ToolOutcomeUnknownError(reason, tool=tool, retryable=True).to_payload()
