"""Halves of a split batch are batches of their own, taken over like any other."""

from typing import Any

from runtime.model.call import AnswerState
from runtime.model.failure import FailureClass
from runtime.model.physical_request import PhysicalRequest
from tests.lane_stage import LaneStage, calls, echo, failing, items_of
from tests.unit.test_lane_stores_away import never


async def test_halves_on_the_wire_when_their_worker_dies_are_sent_again_verbatim() -> None:
    def answer(request: PhysicalRequest) -> Any:
        if len(items_of(request)) == 4:
            raise failing(FailureClass.BAD_REQUEST)
        return never(request)

    one = await LaneStage(answer).start()
    await one.post(calls(4))
    await one.clock.advance(20)
    whole, *halves = one.requests.sent
    assert [len(items_of(request)) for request in (whole, *halves)] == [4, 2, 2]
    await one.die()
    two = await LaneStage(
        echo, session="lane-2", redis=one.redis, receipts=one.receipts, clock=one.clock
    ).start()
    await two.engine.sweep()
    await two.clock.advance(20)
    assert {(sent.idempotency_key, sent.payload) for sent in two.requests.sent} == {
        (sent.idempotency_key, sent.payload) for sent in halves
    }
    assert {told.state for told in (await two.answers()).values()} == {AnswerState.COMPLETED}
    assert len(two.receipts.stored) == 4 and two.balanced()
