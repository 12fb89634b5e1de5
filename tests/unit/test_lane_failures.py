"""The lane when requests fail: retries, bisection, unknown outcomes, halted runs."""

import math

from runtime.errors import ToolRejectedError
from runtime.model.call import AnswerState
from runtime.model.failure import FailureClass
from runtime.model.physical_request import PhysicalReply, PhysicalRequest
from runtime.model.receipt import ReceiptState
from runtime.model.tool import ToolMetadata
from runtime.policy.limits import Limits
from tests.lane_stage import LaneStage, call, calls, echo, failing, items_of, tool


async def test_one_bad_item_fails_alone_with_few_extra_requests() -> None:
    def answer(request: PhysicalRequest) -> PhysicalReply:
        if "i7" in items_of(request):
            raise failing(FailureClass.BAD_REQUEST)
        return echo(request)

    stage = await LaneStage(answer, metadata=tool(32)).start()
    posted = calls(32)
    accepted = await stage.post(posted)
    await stage.finish(accepted, within_ms=100)
    answers = await stage.answers()
    assert len(answers) == 32
    assert [c.input["item"] for c in posted if answers[c.key].state is AnswerState.FAILED] == ["i7"]
    assert len(stage.requests.sent) <= 1 + 2 * math.ceil(math.log2(32))
    keys = [request.idempotency_key for request in stage.requests.sent]
    assert len(set(keys)) == len(keys), "halves are new batches"
    assert stage.balanced()


async def test_a_rate_limit_is_waited_out_and_the_same_batch_is_sent_again() -> None:
    refusals = [failing(FailureClass.RATE_LIMITED, retry_after_ms=3_000), failing(FailureClass.RATE_LIMITED)]

    def answer(request: PhysicalRequest) -> PhysicalReply:
        if refusals:
            raise refusals.pop(0)
        return echo(request)

    stage = await LaneStage(answer).start()
    accepted = await stage.post(calls(5))
    await stage.clock.advance(2_900)
    assert len(stage.requests.sent) == 1 and stage.pacer.in_use("fakeprov") == 0, "no place is held by a wait"
    await stage.finish(accepted, within_ms=5_000)
    assert len({(request.idempotency_key, request.payload) for request in stage.requests.sent}) == 1
    assert [request.attempt for request in stage.requests.sent] == [0, 1, 2]
    assert {a.state for a in (await stage.answers()).values()} == {AnswerState.COMPLETED}


async def test_an_invocation_in_progress_keeps_its_attempt() -> None:
    refusals = [failing(FailureClass.IN_PROGRESS)]

    def answer(request: PhysicalRequest) -> PhysicalReply:
        if refusals:
            raise refusals.pop(0)
        return echo(request)

    stage = await LaneStage(answer).start()
    await stage.finish(await stage.post(calls(1)), within_ms=3_000)
    assert [request.attempt for request in stage.requests.sent] == [0, 0]


async def test_an_ambiguous_send_ends_unknown_and_is_not_repeated_by_itself() -> None:
    def answer(request: PhysicalRequest) -> PhysicalReply:
        raise failing(FailureClass.AMBIGUOUS)

    stage = await LaneStage(answer).start()
    await stage.finish(await stage.post(calls(2)), within_ms=60_000)
    assert len(stage.requests.sent) == 1
    assert {a.state for a in (await stage.answers()).values()} == {AnswerState.UNKNOWN}
    assert {r.state for r in stage.receipts.stored.values()} == {ReceiptState.UNKNOWN}
    same_run = await stage.post(calls(2))
    assert same_run.is_done and len(stage.requests.sent) == 1
    later_run = await stage.post(calls(2, run_id="r2"))
    await stage.finish(later_run)
    assert stage.requests.sent[0].idempotency_key == stage.requests.sent[1].idempotency_key
    assert stage.balanced()


async def test_transport_errors_before_dispatch_are_retried_then_repairable() -> None:
    def answer(request: PhysicalRequest) -> PhysicalReply:
        raise failing(FailureClass.TRANSPORT_BEFORE_DISPATCH)

    limits = Limits()
    stage = await LaneStage(answer, limits=limits).start()
    await stage.finish(await stage.post(calls(2)), within_ms=60_000)
    assert len(stage.requests.sent) == limits.transport_attempts
    assert {(r.state, r.terminal) for r in stage.receipts.stored.values()} == {(ReceiptState.FAILED, False)}


async def test_used_up_credits_stop_the_run_before_its_next_call() -> None:
    def answer(request: PhysicalRequest) -> PhysicalReply:
        if "i0" in items_of(request):
            raise failing(FailureClass.CREDITS_EXHAUSTED)
        return echo(request)

    stage = await LaneStage(answer, metadata=tool(2), groups=1).start()
    one = await stage.post(calls(6))
    await stage.clock.advance(10)
    other = await stage.post(calls(2, "x", run_id="r2"))
    await stage.clock.advance(50)
    assert one.is_done and other.is_done
    assert [items_of(request) for request in stage.requests.sent] == [["i0", "i1"], ["x0", "x1"]]
    await stage.post(calls(1, "later"))
    await stage.clock.advance(50)
    answers = await stage.answers()
    error = answers[call("later0").key].error
    assert error is not None and error["code"] == "run_halted"
    assert answers[call("x1", run_id="r2").key].state is AnswerState.COMPLETED
    assert stage.engine.snapshot().prevented >= 4 and stage.balanced()


async def test_a_missing_doubled_or_strange_item_costs_only_itself() -> None:
    def answer(request: PhysicalRequest) -> PhysicalReply:
        items = echo(request).result["items"]
        strange = {"key": "99", "result": {"value": "of nobody"}}
        return PhysicalReply(result={"items": [items[3], items[1], items[1], items[0], strange]})

    stage = await LaneStage(answer).start()
    posted = calls(4)
    await stage.finish(await stage.post(posted))
    answers = await stage.answers()
    assert [answers[c.key].state.value for c in posted] == ["completed", "unknown", "failed", "completed"]
    assert answers[posted[3].key].output == b'{"value":"v:i3"}'
    assert not stage.receipts.stored[posted[2].key].terminal


async def test_an_error_of_ours_after_sending_ends_unknown_not_lost() -> None:
    def answer(request: PhysicalRequest) -> PhysicalReply:
        raise ZeroDivisionError("a bug")

    stage = await LaneStage(answer).start()
    await stage.finish(await stage.post(calls(3)))
    assert {a.state for a in (await stage.answers()).values()} == {AnswerState.UNKNOWN}
    assert stage.balanced()


async def test_a_tool_that_cannot_be_looked_up_fails_its_calls_only() -> None:
    stage = await LaneStage().start()
    known = stage.catalog.metadata

    async def metadata(tool: str, org_id: str) -> ToolMetadata:
        if tool == "gone":
            raise ToolRejectedError("no such tool", tool=tool)
        return await known(tool, org_id)

    stage.catalog.metadata = metadata
    posted = [call("a"), call("a", tool="gone")]
    await stage.finish(await stage.post(posted))
    answers = await stage.answers()
    assert [answers[c.key].state.value for c in posted] == ["completed", "failed"]
    assert len(stage.receipts.stored) == 1 and stage.balanced()
