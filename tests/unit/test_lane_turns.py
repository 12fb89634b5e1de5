"""Nobody waits behind a large run, and nobody sits through a long wait of the lane."""

import asyncio
from typing import Any

import pytest

from runtime.model.call import AnswerState
from runtime.model.failure import FailureClass
from runtime.model.physical_request import PhysicalReply, PhysicalRequest
from runtime.model.receipt import ReceiptState
from tests.lane_stage import LIMITS, Catalog, LaneStage, calls, echo, failing, items_of, tool

HOLD_MS = LIMITS.hold_ms


async def test_a_few_calls_of_another_tool_go_between_those_of_a_large_run() -> None:
    stage: LaneStage

    async def slow(request: PhysicalRequest) -> PhysicalReply:
        await stage.clock.sleep(10)
        return echo(request)

    stage = LaneStage(slow, groups=1)
    catalog: Any = Catalog(tool(10), tool(10, "other"))
    object.__setattr__(stage.engine._parts, "catalog", catalog)
    await stage.start()
    await asyncio.gather(
        stage.post(calls(200, "large")),
        stage.post(calls(5, "small", run_id="small", tool="other")),
    )
    for _ in range(30):
        await stage.clock.advance(10)
    sent = [items_of(request) for request in stage.requests.sent]
    assert len(sent) == 21
    small = next(n for n, items in enumerate(sent) if items[0].startswith("small"))
    assert small <= 2 and len(sent[small]) == 5, "behind no more than was on its way"


async def test_a_long_wait_after_a_refusal_frees_the_rows_and_keeps_the_batch() -> None:
    refusals = [failing(FailureClass.RATE_LIMITED, retry_after_ms=2 * HOLD_MS)]

    def answer(request: PhysicalRequest) -> PhysicalReply:
        if refusals:
            raise refusals.pop(0)
        return echo(request)

    stage = await LaneStage(answer).start()
    posted = calls(3)
    accepted = await stage.post(posted)
    await stage.finish(accepted)
    told = await stage.answers()
    assert {(one.state, one.until_ms) for one in told.values()} == {(AnswerState.TRY_LATER, 2 * HOLD_MS)}
    assert len(stage.redis.leases) == 3, "the batch is still this process's"
    early = await stage.post(posted[:1])
    await stage.clock.advance(2 * HOLD_MS)
    assert early.is_done
    assert [len(items_of(request)) for request in stage.requests.sent] == [3, 3]
    assert len({request.idempotency_key for request in stage.requests.sent}) == 1
    assert {one.state for one in stage.receipts.stored.values()} == {ReceiptState.COMPLETED}
    await stage.finish(await stage.post(posted))
    again = await stage.answers()
    assert {one.state for one in again.values()} == {AnswerState.COMPLETED}
    assert len(stage.requests.sent) == 2 and stage.balanced()


async def test_halves_of_a_refused_batch_on_a_lane_that_closes_free_their_rows() -> None:
    stage: LaneStage

    def answer(request: PhysicalRequest) -> PhysicalReply:
        if len(stage.requests.sent) == 1:
            closed_ms[0] = stage.clock.now_ms() + 3 * HOLD_MS
            raise failing(FailureClass.BAD_REQUEST)
        return echo(request)

    stage = await LaneStage(answer, metadata=tool(4)).start()
    closed_ms = [0.0]
    reserve = stage.pacer.reserve

    async def closing(*asked: Any, **more: Any) -> Any:
        ticket: Any = await reserve(*asked, **more)

        async def confirm(most: int, *, whole: bool = False) -> tuple[int, float]:
            wait_ms = max(0.0, closed_ms[0] - stage.clock.now_ms())
            return (0, wait_ms) if wait_ms else (most, 0.0)

        ticket.confirm = confirm
        return ticket

    stage.pacer.reserve = closing  # type: ignore[method-assign]
    accepted = await stage.post(calls(4))
    await stage.finish(accepted)
    assert {one.state for one in (await stage.answers()).values()} == {AnswerState.TRY_LATER}
    await stage.clock.advance(3 * HOLD_MS)
    assert [len(items_of(request)) for request in stage.requests.sent] == [4, 2, 2]
    assert len(stage.receipts.stored) == 4 and stage.balanced()


@pytest.mark.parametrize("breaks", ["reserve", "due", "confirm"])
async def test_an_error_of_ours_in_line_leaves_no_call_behind(breaks: str) -> None:
    stage = await LaneStage().start()
    reserve = stage.pacer.reserve

    async def broken(*_asked: Any, **_more: Any) -> Any:
        raise RuntimeError("a script that isn't there")

    async def breaking(*asked: Any, **more: Any) -> Any:
        ticket: Any = await reserve(*asked, **more)
        setattr(ticket, breaks, broken)
        return ticket

    stage.pacer.reserve = broken if breaks == "reserve" else breaking  # type: ignore[method-assign]
    accepted = await stage.post(calls(3))
    await stage.finish(accepted)
    assert not await stage.answers() and not stage.requests.sent, "their callers' polls post them again"
    assert stage.balanced()
    stage.pacer.reserve = reserve  # type: ignore[method-assign]
    await stage.finish(await stage.post(calls(3)))
    assert len(await stage.answers()) == 3 and stage.balanced()
    assert not stage.engine._specs
