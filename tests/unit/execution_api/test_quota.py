"""A provider's used up quota: an error with the moment at which it is over, and a closed scope until then."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from examples.execution_api.execution import ApiState
from runtime.errors import ExecuteFailedError, ProviderExhaustedError, tool_call_error
from runtime.execution_api.client import ExecutionApiClient
from runtime.model.call import AnswerState
from runtime.model.failure import Failure, FailureClass
from runtime.model.outcome import ItemFailed
from runtime.model.physical_request import PhysicalReply, PhysicalRequest
from runtime.policy.batching import strategy_for
from runtime.policy.limits import DEFAULT_LIMITS
from tests.lane_stage import LaneStage, call, calls, echo, tool
from tests.unit.execution_api.conftest import request_of

NOON = "Mon, 30 Nov 2026 12:00:00 GMT"


def reported(stage: LaneStage) -> list[float | None]:
    """The refusals that the stage's pacer is told of, as they come."""
    reports: list[float | None] = []
    reserve = stage.pacer.reserve

    async def watched(scope: Any, items: int, turn: Any = "") -> Any:
        ticket = await reserve(scope, items)

        async def limited(retry_after_ms: float | None) -> None:
            reports.append(retry_after_ms)

        ticket.limited = limited  # type: ignore[method-assign]
        return ticket

    stage.pacer.reserve = watched  # type: ignore[method-assign]
    return reports


def spent(*retry_ats: Any, replied_at: datetime | None) -> Callable[[PhysicalRequest], PhysicalReply]:
    """The first items of each reply find the quota used up; the others are answered."""

    def answer(request: PhysicalRequest) -> PhysicalReply:
        reply = echo(request)
        for item, retry_at in zip(reply.result["items"], retry_ats, strict=False):
            del item["result"]
            item["error"] = {"code": "provider_exhausted", "retry_at": retry_at}
        return replace(reply, replied_at=replied_at)

    return answer


async def failure_of(client: ExecutionApiClient) -> Failure:
    with pytest.raises(ExecuteFailedError) as caught:
        await client.execute(request_of("echo_single"))
    return caught.value.failure


@pytest.mark.parametrize(
    ("how", "retry_at", "wait_ms"),
    [
        ({"retry_at": "2026-11-30T14:00:00+01:00"}, "2026-11-30T13:00:00Z", 3_600_000),
        ({"retry_at": "2026-11-30T12:00:30"}, "2026-11-30T12:00:30Z", 30_000),
        ({"retry_at": "2026-11-30T11:00:00Z"}, "2026-11-30T11:00:00Z", 0),
        ({"retry_at": "2027-11-30T11:00:00Z"}, "2027-11-30T11:00:00Z", DEFAULT_LIMITS.later_max_ms),
        ({"retry_at": "soon", "retry_after": "7200"}, "2026-11-30T14:00:00Z", 7_200_000),
        ({}, "2026-11-30T12:15:00Z", DEFAULT_LIMITS.quota_wait_ms),
        ({"retry_at": "0001-01-01T00:00:00+14:00"}, "2026-11-30T12:15:00Z", DEFAULT_LIMITS.quota_wait_ms),
    ],
)
async def test_it_says_until_when_by_the_replys_own_clock(
    client: ExecutionApiClient, state: ApiState, how: dict[str, Any], retry_at: str, wait_ms: float
) -> None:
    forced = {"status": 429, "code": "QUOTA_EXHAUSTED", "date": NOON, **how}
    state.misbehaviour = state.misbehaviour.merged({"answer": forced})
    failure = await failure_of(client)
    assert failure.failure_class is FailureClass.PROVIDER_EXHAUSTED
    assert (failure.code, failure.retry_at, failure.retry_after_ms) == (
        "provider_exhausted",
        retry_at,
        wait_ms,
    )
    assert failure.not_charged


async def test_a_good_reply_may_say_it_too(client: ExecutionApiClient, state: ApiState) -> None:
    said = {
        "status": "failed",
        "error": {"code": "quota_exhausted", "message": "no more", "retry_at": "2126-11-30T13:00:00Z"},
    }
    state.misbehaviour = state.misbehaviour.merged({"reply_text": json.dumps(said)})
    failure = await failure_of(client)
    assert failure.failure_class is FailureClass.PROVIDER_EXHAUSTED
    assert (failure.code, failure.retry_at, failure.retry_after_ms) == (
        "provider_exhausted",
        "2126-11-30T13:00:00Z",
        DEFAULT_LIMITS.later_max_ms,
    )
    assert failure.not_charged


async def test_an_author_meets_an_error_of_its_own_and_the_lane_is_closed() -> None:
    def exhausted(_request: PhysicalRequest) -> PhysicalReply:
        raise ExecuteFailedError(
            Failure(
                failure_class=FailureClass.PROVIDER_EXHAUSTED,
                operation="echo",
                message="echo answered HTTP 429",
                code="provider_exhausted",
                retry_after_ms=5_000,
                retry_at="2026-11-30T14:00:00Z",
            )
        )

    stage = await LaneStage(exhausted, metadata=tool(1)).start()
    reports = reported(stage)
    await stage.finish(await stage.post([call("a")]))
    found = (await stage.answers())[call("a").key]
    assert found.state is AnswerState.FAILED
    assert not found.terminal
    assert reports == [5_000]
    error = tool_call_error(found.error or {})
    assert isinstance(error, ProviderExhaustedError)
    assert (error.code, error.retryable, error.retry_at) == (
        "provider_exhausted",
        True,
        "2026-11-30T14:00:00Z",
    )


def test_one_item_of_a_batch_may_say_it_too() -> None:
    strategy = strategy_for(replace(tool(10)))
    inputs = [{"item": "a"}]
    key = strategy.payload(inputs)["items"][0]["key"]
    said = {"key": key, "error": {"code": "Quota_Exhausted", "retry_at": "2026-11-30T14:00:00Z"}}
    (outcome,) = strategy.split({"items": [said]}, inputs).outcomes
    assert isinstance(outcome, ItemFailed)
    assert (outcome.code, outcome.retryable, outcome.terminal, outcome.charged) == (
        "provider_exhausted",
        True,
        False,
        False,
    )
    assert outcome.details == {"retry_at": "2026-11-30T14:00:00Z"}


@pytest.mark.parametrize(
    ("retry_ats", "wait_ms"),
    [
        (["2026-11-30T14:00:00+01:00"], 3_600_000),
        (["2026-11-30T12:00:30Z", "2026-11-30T12:01:00Z"], 60_000),
        (["2026-11-30T11:00:00Z"], 0),
        (["2027-11-30T11:00:00Z"], DEFAULT_LIMITS.later_max_ms),
        (["soon\x00", 7], DEFAULT_LIMITS.quota_wait_ms),
        ([], None),
    ],
)
async def test_items_of_a_good_reply_close_the_scope_as_a_refused_request_does(
    retry_ats: list[Any], wait_ms: float | None
) -> None:
    """By the reply's own clock, until the latest moment, no longer than bounded; the other items are answered."""
    noon = datetime(2026, 11, 30, 12, tzinfo=UTC)
    stage = await LaneStage(spent(*retry_ats, replied_at=noon), metadata=tool(3)).start()
    reports = reported(stage)
    await stage.finish(await stage.post(calls(3)))
    assert reports == ([] if wait_ms is None else [wait_ms])
    states = sorted(one.state for one in (await stage.answers()).values())
    failed = len(retry_ats)
    assert states == sorted([AnswerState.FAILED] * failed + [AnswerState.COMPLETED] * (3 - failed))
    errors = [receipt.error for receipt in stage.receipts.stored.values() if receipt.error]
    assert not any("\x00" in str(error) for error in errors)
    assert stage.balanced()
