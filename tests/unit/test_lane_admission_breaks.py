"""What an admission that breaks off leaves behind: no lease, and whoever was answered hears it."""

from dataclasses import replace

from runtime.errors import ServiceUnreachableError
from runtime.model.call import AnswerState
from runtime.model.receipt import Receipt, ReceiptState
from runtime.policy.limits import Limits
from tests.lane_stage import call
from tests.unit.test_lane_fence import stage_of


def stored(item: str, state: ReceiptState) -> Receipt:
    return Receipt(
        key=call(item).key,
        org_id="o",
        tool="echo",
        run_id="r0",
        state=state,
        fence=1,
        output=b'"kept"' if state is ReceiptState.COMPLETED else None,
    )


async def test_answered_calls_hold_no_lease_when_the_fence_cannot_be_asked() -> None:
    stage = await stage_of(limits=replace(Limits(), lane_wait_ms=0))
    for item, state in (("a", ReceiptState.COMPLETED), ("b", ReceiptState.DISPATCHED)):
        stage.receipts.stored[call(item).key] = stored(item, state)

    async def silent() -> bool:
        raise ServiceUnreachableError("no answer")

    stage.requests.attests_fence = silent  # type: ignore[method-assign]
    accepted = await stage.post([call("a"), call("b")])
    assert accepted.is_done
    answers = {key: answer.state for key, answer in (await stage.answers()).items()}
    assert answers == {call("a").key: AnswerState.COMPLETED, call("b").key: AnswerState.RETURNED}
    assert not stage.redis.leases and stage.balanced()
