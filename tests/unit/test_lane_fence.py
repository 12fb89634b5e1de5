"""Calls whose effect must not happen twice: marked before they leave, repeated only under an attested fence."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from runtime.faults import InjectedFaultError
from runtime.model.call import AnswerState, Call
from runtime.model.failure import FailureClass
from runtime.model.physical_request import PhysicalReply, PhysicalRequest
from runtime.model.receipt import Receipt, ReceiptState
from runtime.model.tool import ToolMetadata
from tests.lane_stage import LaneStage, Receipts, call, calls, echo, failing

FENCED = ToolMetadata(tool="echo", provider="fakeprov", requires_execution_fence=True)
PLAIN = ToolMetadata(tool="echo", provider="fakeprov")


async def never(_request: PhysicalRequest) -> PhysicalReply:
    return await asyncio.get_running_loop().create_future()


def failing_once(kind: FailureClass) -> Callable[[PhysicalRequest], PhysicalReply]:
    refusals = [failing(kind)]

    def answer(request: PhysicalRequest) -> PhysicalReply:
        if refusals:
            raise refusals.pop()
        return echo(request)

    return answer


async def stage_of(answer: Any = echo, *, attests: bool = True, **options: Any) -> LaneStage:
    stage = await LaneStage(answer, metadata=options.pop("metadata", FENCED), **options).start()
    stage.requests.attests = attests
    return stage


def states(stage: LaneStage) -> list[tuple[ReceiptState, bool]]:
    return [(receipt.state, receipt.terminal) for receipt in stage.receipts.stored.values()]


async def test_the_mark_is_stored_before_anything_leaves() -> None:
    seen: list[ReceiptState] = []

    def answer(request: PhysicalRequest) -> PhysicalReply:
        seen.extend(receipt.state for receipt in stage.receipts.stored.values())
        return replace(echo(request), fence_attested=True)

    stage = await stage_of(answer)
    await stage.finish(await stage.post(calls(1)))
    assert seen == [ReceiptState.DISPATCHED]
    assert states(stage) == [(ReceiptState.COMPLETED, False)] and stage.balanced()
    assert [request.is_fenced for request in stage.requests.sent] == [True]


async def test_other_tools_are_not_marked() -> None:
    stage = await stage_of(metadata=PLAIN)
    await stage.finish(await stage.post(calls(1)))
    assert stage.receipts.statements == 1
    assert [request.is_fenced for request in stage.requests.sent] == [False]


@pytest.mark.parametrize(
    "kind",
    [
        FailureClass.AMBIGUOUS,
        FailureClass.BODY_STALLED,
        FailureClass.BODY_CUT,
        FailureClass.BODY_INVALID,
    ],
)
async def test_an_ambiguous_send_is_repeated_under_an_attested_fence_only(kind: FailureClass) -> None:
    attested = await stage_of(failing_once(kind))
    await attested.finish(await attested.post(calls(1)), within_ms=5_000)
    assert len({request.idempotency_key for request in attested.requests.sent}) == 1
    assert len(attested.requests.sent) == 2 and states(attested) == [(ReceiptState.COMPLETED, False)]

    silent = await stage_of(failing_once(kind), attests=False)
    await silent.finish(await silent.post(calls(1)), within_ms=5_000)
    assert len(silent.requests.sent) == 1 and states(silent) == [(ReceiptState.UNKNOWN, True)]


async def test_a_plain_tool_is_not_repeated_even_if_the_api_attests() -> None:
    stage = await stage_of(failing_once(FailureClass.AMBIGUOUS), metadata=PLAIN)
    await stage.finish(await stage.post(calls(1)), within_ms=5_000)
    assert len(stage.requests.sent) == 1 and states(stage) == [(ReceiptState.UNKNOWN, False)]


async def test_fixture_mode_repeats_an_ambiguous_send() -> None:
    stage = await stage_of(failing_once(FailureClass.AMBIGUOUS), metadata=PLAIN, attests=False)
    posted = [replace(one, integration_mode="fixture") for one in calls(1)]
    await stage.finish(await stage.post(posted), within_ms=5_000)
    assert len(stage.requests.sent) == 2 and states(stage) == [(ReceiptState.COMPLETED, False)]


async def test_a_later_run_is_told_unknown_and_sends_nothing() -> None:
    stage = await stage_of(failing_once(FailureClass.AMBIGUOUS), attests=False)
    await stage.finish(await stage.post(calls(1)), within_ms=5_000)
    await stage.answers()
    later = await stage.post(calls(1, run_id="r2"))
    assert later.is_done and len(stage.requests.sent) == 1
    assert [answer.state for answer in (await stage.answers()).values()] == [AnswerState.UNKNOWN]


@pytest.mark.parametrize("attests", [True, False])
async def test_takeover_of_a_fenced_batch(attests: bool) -> None:
    one = await stage_of(never)
    await one.post(calls(1))
    await one.clock.advance(10)
    await one.die()
    two = await stage_of(
        attests=attests, session="lane-2", redis=one.redis, receipts=one.receipts, clock=one.clock
    )
    await two.engine.sweep()
    await two.clock.advance(10)
    keys = [request.idempotency_key for request in two.requests.sent]
    assert keys == ([one.requests.sent[0].idempotency_key] if attests else [])
    assert states(two) == [(ReceiptState.COMPLETED, False) if attests else (ReceiptState.UNKNOWN, True)]
    assert len(await two.answers()) == 1 and two.balanced()


@pytest.mark.parametrize("attests", [True, False])
async def test_a_mark_whose_batch_record_is_lost_too(attests: bool) -> None:
    """The process died and Redis lost its data: only the mark says that the call was perhaps made."""
    one = await stage_of(never)
    await one.post(calls(1))
    await one.clock.advance(10)
    await one.die()
    one.redis.flush()
    two = await stage_of(
        attests=attests, session="lane-2", redis=one.redis, receipts=one.receipts, clock=one.clock
    )
    asking = await two.post(calls(1, inbox="rows-2"))
    await two.finish(asking)
    assert len(two.requests.sent) == (1 if attests else 0)
    assert states(two) == [(ReceiptState.COMPLETED, False) if attests else (ReceiptState.UNKNOWN, True)]
    (answer,) = (await two.answers("rows-2")).values()
    if not attests:
        assert answer.error is not None and "only when forced" in answer.error["message"]
    assert two.balanced()


async def test_an_error_before_the_send_takes_the_mark_back() -> None:
    async def fault(point: str) -> None:
        if point == "lane.after_seal":
            raise InjectedFaultError(point)

    stage = await stage_of(attests=False, fault=fault)
    await stage.finish(await stage.post(calls(1)), within_ms=20)
    assert not stage.receipts.stored and not stage.requests.sent and stage.balanced()


async def test_nothing_is_sent_while_the_mark_cannot_be_stored() -> None:
    stage = await stage_of()
    accepted = await stage.post(calls(1))
    stage.receipts.away = 3
    await stage.clock.advance(100)
    assert not stage.requests.sent
    await stage.finish(accepted, within_ms=10_000)
    assert states(stage) == [(ReceiptState.COMPLETED, False)] and stage.balanced()


async def test_what_others_completed_meanwhile_is_served_and_not_sent() -> None:
    class Raced(Receipts):
        async def read(self, keys: Any) -> dict[str, Receipt]:
            found = await super().read(keys)
            for key in keys:
                self.stored[key] = done(call("i0"))
            return found

    stage = await stage_of(receipts=Raced())
    await stage.finish(await stage.post(calls(1)))
    (answer,) = (await stage.answers()).values()
    assert answer.output == b'"theirs"' and not stage.requests.sent and stage.balanced()


async def test_a_changed_auth_scope_stores_nothing_and_is_said() -> None:
    def answer(request: PhysicalRequest) -> PhysicalReply:
        raise failing(FailureClass.AUTH_SCOPE_CHANGED)

    stage = await stage_of(answer, attests=False)
    await stage.finish(await stage.post(calls(1)))
    (told,) = (await stage.answers()).values()
    assert told.state is AnswerState.FAILED and told.error is not None
    assert told.error["code"] == "auth_scope_changed" and told.error["details"]["attempt"] == 1
    assert not stage.receipts.stored and stage.balanced()


async def test_calls_of_different_auth_scopes_never_share_a_batch() -> None:
    stage = await LaneStage().start()
    posted = [replace(one, auth_scope=f"scope-{n % 2}") for n, one in enumerate(calls(4))]
    await stage.finish(await stage.post(posted))
    assert sorted((r.auth_scope, len(r.item_idempotency_keys)) for r in stage.requests.sent) == [
        ("scope-0", 2),
        ("scope-1", 2),
    ]


def done(of: Call) -> Receipt:
    return Receipt(
        key=of.key,
        org_id=of.org_id,
        tool=of.tool,
        run_id="r9",
        state=ReceiptState.COMPLETED,
        fence=10**15,
        output=b'"theirs"',
    )
