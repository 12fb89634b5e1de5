"""A stored receipt as an answer, and whom an answer serves."""

from runtime.model.call import Answer, AnswerState, Call
from runtime.model.receipt import Receipt, ReceiptState
from runtime.policy import freshness

_STATES = {
    ReceiptState.COMPLETED: AnswerState.COMPLETED,
    ReceiptState.FAILED: AnswerState.FAILED,
    ReceiptState.UNKNOWN: AnswerState.UNKNOWN,
    ReceiptState.DISPATCHED: AnswerState.UNKNOWN,
}


def answer_of(receipt: Receipt, *, cached: bool, key: str | None = None) -> Answer:
    """A receipt as the answer to a call; `key` if the call's is another (an older version answers)."""
    return Answer(
        key=key or receipt.key,
        state=_STATES[receipt.state],
        output=receipt.output,
        error=receipt.error,
        cached=cached,
        run_id=receipt.run_id,
        produced_ms=receipt.produced_ms if cached else None,
        terminal=receipt.terminal,
    )


def serves(answer: Answer, call: Call) -> bool:
    """Whether an answer that arrived for a key is one for this call.

    What was made just now serves everybody; another run's failure only if it is final, its lack of budget never.
    """
    if answer.run_id in (None, call.run_id):
        return True
    if answer.state is AnswerState.OVER_BUDGET:
        return False
    if answer.state in (AnswerState.FAILED, AnswerState.UNKNOWN) and not answer.terminal:
        return False
    if not answer.cached:
        return True
    is_failure = answer.state is AnswerState.FAILED
    moment_ms = call.accepts.failed_not_before_ms if is_failure else call.accepts.not_before_ms
    return freshness.is_since(answer.produced_ms, moment_ms)
