"""Tool metadata: parsed, cached for its time, looked up once at a time, failures never kept."""

import asyncio
from typing import Any

import httpx
import pytest

from examples.execution_api.execution import ApiState
from runtime.engine.lane_flight import rate_scope
from runtime.engine.lane_spec import BatchSpec
from runtime.errors import PlaylaneError, ServiceUnreachableError, ToolRejectedError, ToolUnavailableError
from runtime.execution_api.client import ExecutionApiClient
from runtime.model.tool import BatchRule, Counts, Normalise, NormaliseRule, PacingRule
from runtime.policy.batching import strategy_for
from runtime.policy.limits import DEFAULT_LIMITS
from runtime.policy.normalising import normalised
from tests.unit.execution_api.conftest import answering
from tests.waiting import wait_until_async


async def no_sleep(seconds: float) -> None: ...


async def test_the_reference_tools_declare_what_they_are(client: ExecutionApiClient) -> None:
    tool = await client.metadata("country_facts", "org")
    assert tool.provider == "countries"
    assert tool.credits_per_item == 2
    assert tool.action_version == "1"
    assert tool.transient_http_retry_safe
    assert tool.batch == BatchRule(operation="country_facts_batch", max_batch_size=100)
    assert tool.pacing == (PacingRule(limit=500, per_ms=1_000, counts=Counts.ITEMS, burst=100),)
    assert tool.normalise == (NormaliseRule(field="code", steps=(Normalise.TRIM,)),)


async def test_little_is_required() -> None:
    client = answering(lambda _: httpx.Response(200, json={"provider": "p", "later": {"field": 1}}))
    tool = await client.tool_metadata("t", "org")
    assert (tool.tool, tool.provider, tool.batch, tool.pacing) == ("t", "p", None, ())


@pytest.mark.parametrize(("declared", "most"), [((), None), ((None, 7, 5), 5)])
async def test_a_hint_may_say_how_many_requests_are_on_the_wire_at_once(
    declared: tuple[int | None, ...], most: int | None
) -> None:
    hints = [{"limit": 9, "perMs": 1_000, "maxConcurrency": one} for one in declared]
    client = answering(lambda _: httpx.Response(200, json={"provider": "p", "queueHints": hints}))
    metadata = await client.tool_metadata("t", "org")
    assert metadata.concurrency == most
    spec = BatchSpec(metadata=metadata, strategy=strategy_for(metadata), timeout_ms=1_000)
    assert rate_scope("p", "org", spec).concurrency == most


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"provider": " "},
        {"provider": "p", "actionCacheVersion": ""},
        {"provider": "p", "batch": {"operation": "o", "maxBatchSize": 0}},
        {"provider": "p", "queueHints": [{"limit": 0, "perMs": 1}]},
        {"provider": "p", "queueHints": [{"limit": 1, "perMs": 0}]},
        {"provider": "p", "queueHints": [{"limit": 1, "perMs": 1, "maxConcurrency": 0}]},
        {"provider": "p", "normalise": {"x": ["rot13"]}},
        [],
    ],
)
async def test_metadata_that_makes_no_sense_is_refused(body: Any) -> None:
    client = answering(lambda _: httpx.Response(200, json=body))
    with pytest.raises(ToolRejectedError, match="unreadable") as caught:
        await client.tool_metadata("t", "org")
    assert caught.value.code == "bad_metadata"


async def test_it_is_kept_for_its_time(state: ApiState) -> None:
    clock, looked_up = [0.0], []

    def reply(request: httpx.Request) -> httpx.Response:
        looked_up.append(request.url.path)
        return httpx.Response(200, json={"provider": "p"})

    client = answering(reply, now_s=lambda: clock[0])
    await client.tool_metadata("t", "org")
    clock[0] = DEFAULT_LIMITS.metadata_ttl_s - 1
    await client.tool_metadata("t", "org")
    assert len(looked_up) == 1
    await client.tool_metadata("t", "another")
    clock[0] += 2
    await client.tool_metadata("t", "org")
    assert looked_up == ["/api/v2/plays/runtime-tools/t"] * 3


async def test_callers_share_one_look_up_and_a_cancelled_one_takes_nothing_away() -> None:
    looked_up, go = [], asyncio.Event()

    async def reply(request: httpx.Request) -> httpx.Response:
        looked_up.append(request)
        await go.wait()
        return httpx.Response(200, json={"provider": "p"})

    client = answering(reply)  # type: ignore[arg-type]
    callers = [asyncio.create_task(client.tool_metadata("t", "org")) for _ in range(20)]
    await wait_until_async(lambda: looked_up)
    callers[0].cancel()
    go.set()
    answers = await asyncio.gather(*callers, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert {answer.provider for answer in answers[1:] if not isinstance(answer, BaseException)} == {"p"}
    assert len(looked_up) == 1


@pytest.mark.parametrize("status", [408, 429, 502, 503, 504, 520, 524])
async def test_a_passing_refusal_is_tried_again(
    client: ExecutionApiClient, state: ApiState, status: int
) -> None:
    state.misbehaviour = state.misbehaviour.merged({"metadata_status": status, "metadata_status_times": 2})
    assert (await client.tool_metadata("echo", "org")).provider == "fakeprov"


async def test_waits_between_tries_are_those_of_the_policy() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    client = answering(lambda _: httpx.Response(503), sleep=sleep)
    with pytest.raises(ServiceUnreachableError):
        await client.tool_metadata("t", "org")
    assert waits == [0.1, 0.25]


@pytest.mark.parametrize(
    ("status", "kind", "tries"),
    [
        (404, ToolRejectedError, 1),
        (401, ToolUnavailableError, 1),
        (400, ToolRejectedError, 1),
        (500, ServiceUnreachableError, 1),
        (503, ServiceUnreachableError, 3),
    ],
)
async def test_a_refused_look_up_is_never_kept(status: int, kind: type[PlaylaneError], tries: int) -> None:
    replies = [httpx.Response(status)] * tries + [httpx.Response(200, json={"provider": "p"})]
    client = answering(lambda _: replies.pop(0), sleep=no_sleep)
    with pytest.raises(kind, match="tool t can't be looked up"):
        await client.tool_metadata("t", "org")
    assert (await client.tool_metadata("t", "org")).provider == "p"


async def test_an_api_that_is_away_is_said_so() -> None:
    def reply(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(ServiceUnreachableError, match="after 3 attempt"):
        await answering(reply, sleep=no_sleep).tool_metadata("t", "org")


async def test_equal_inputs_are_made_equal_only_as_declared(client: ExecutionApiClient) -> None:
    declared = await client.tool_metadata("country_facts", "org")
    assert normalised(declared, {"code": " DE ", "x": " y "}) == {"code": "DE", "x": " y "}
    echo = await client.tool_metadata("echo", "org")
    given = {"item": " ACME.example. "}
    assert normalised(echo, given) is given


async def test_the_customer_s_database_is_always_fresh_whatever_the_api_declares() -> None:
    client = answering(lambda _: httpx.Response(200, json={"provider": "deepline"}))
    assert (await client.metadata("query_customer_db", "o")).always_fresh
    assert not (await client.metadata("echo", "o")).always_fresh
