"""`execute` against the reference API: good replies, and every failure class."""

import asyncio
import base64
import inspect
import pickle
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import httpx
import orjson
import pytest

from examples.execution_api.execution import ApiState
from runtime.errors import ExecuteFailedError, ToolCallError
from runtime.execution_api import failures
from runtime.execution_api.client import ExecutionApiClient
from runtime.execution_api.exchange import ExecuteReply, ExecuteRequest
from runtime.execution_api.tokens import StaticTokenSource
from runtime.model.failure import Failure, FailureClass
from runtime.policy.batching import strategy_for
from runtime.policy.limits import DEFAULT_LIMITS
from tests.unit.execution_api.conftest import TOKEN, answering, request_of
from tests.waiting import wait_until_async


async def failure_of(client: ExecutionApiClient, request: ExecuteRequest | None = None) -> Failure:
    with pytest.raises(ExecuteFailedError) as caught:
        await client.execute(request or request_of())
    assert TOKEN not in repr(caught.value) + str(caught.value.to_payload())
    return caught.value.failure


async def test_a_single_call_gives_its_result_and_credits(client: ExecutionApiClient) -> None:
    reply = await client.execute(request_of())
    assert reply.result == {"value": "v:a"}
    assert (reply.status, reply.credits) == ("completed", 1)
    assert reply.meta == {"provider": "fakeprov"}


async def test_both_contracts_carry_the_same_result(client: ExecutionApiClient) -> None:
    raw = await client.execute(request_of())
    legacy = await client.execute(request_of(response_contract="legacy", idempotency_key="batch-2"))
    assert raw.result == legacy.result


async def test_a_batch_is_matched_whatever_the_order(client: ExecutionApiClient, state: ApiState) -> None:
    state.misbehaviour = state.misbehaviour.merged({"shuffle": True})
    strategy = strategy_for(await client.tool_metadata("echo", "org"))
    inputs = [{"item": f"d{n:02}.example"} for n in range(40)]
    reply = await client.execute(request_of(strategy.operation, strategy.payload(inputs)))
    split = strategy.split(reply.result, inputs)
    values = [orjson.loads(outcome.output_json)["value"] for outcome in split.outcomes]  # type: ignore[union-attr]
    assert values == [f"v:d{n:02}.example" for n in range(40)]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ({"status": 429, "retry_after": "2"}, FailureClass.RATE_LIMITED),
        ({"status": 503}, FailureClass.TRANSIENT),
        ({"status": 524}, FailureClass.TRANSIENT),
        ({"status": 408}, FailureClass.TRANSIENT),
        ({"status": 502}, FailureClass.TRANSIENT),
        ({"status": 502, "marked": False}, FailureClass.GATEWAY_502),
        ({"status": 409, "code": "invocation_in_progress"}, FailureClass.IN_PROGRESS),
        ({"status": 503, "code": "gateway_invocation_in_progress"}, FailureClass.IN_PROGRESS),
        ({"status": 409, "code": "conflict"}, FailureClass.REJECTED),
        ({"status": 402}, FailureClass.CREDITS_EXHAUSTED),
        ({"status": 402, "body": "<html>"}, FailureClass.CREDITS_EXHAUSTED),
        ({"status": 402, "origin": "provider"}, FailureClass.PROVIDER_UNAVAILABLE),
        ({"status": 401}, FailureClass.AUTH),
        ({"status": 403}, FailureClass.AUTH),
        ({"status": 400}, FailureClass.BAD_REQUEST),
        ({"status": 413}, FailureClass.BAD_REQUEST),
        ({"status": 422}, FailureClass.BAD_REQUEST),
        ({"status": 404}, FailureClass.NOT_FOUND),
        ({"status": 451}, FailureClass.REJECTED),
        ({"status": 307, "location": "http://inside.example/?token=x"}, FailureClass.REJECTED),
    ],
)
async def test_refusals_by_status(
    client: ExecutionApiClient, state: ApiState, answer: dict[str, object], kind: FailureClass
) -> None:
    state.misbehaviour = state.misbehaviour.merged({"answer": answer})
    failure = await failure_of(client)
    assert failure.failure_class is kind
    assert failure.status == answer["status"]
    assert state.ledger.entries[-1]["charged"] == 0
    # The misbehaviour is used up, and the same request now succeeds.
    assert (await client.execute(request_of())).result == {"value": "v:a"}


async def test_a_redirect_is_named_without_its_query_and_not_followed(
    client: ExecutionApiClient, state: ApiState
) -> None:
    state.misbehaviour = state.misbehaviour.merged(
        {"answer": {"status": 307, "location": "http://inside.example/x?secret=1"}}
    )
    failure = await failure_of(client)
    assert "inside.example" in failure.message
    assert "secret" not in failure.message


async def test_a_rate_limit_says_how_long(client: ExecutionApiClient, state: ApiState) -> None:
    date, due = "Mon, 30 Nov 2026 12:00:00 GMT", "Mon, 30 Nov 2026 12:00:03 GMT"
    state.misbehaviour = state.misbehaviour.merged(
        {"answer": {"status": 429, "retry_after": due, "date": date}}
    )
    assert (await failure_of(client)).retry_after_ms == 3_000


async def test_a_far_retry_after_is_capped_and_says_so(client: ExecutionApiClient, state: ApiState) -> None:
    state.misbehaviour = state.misbehaviour.merged({"answer": {"status": 429, "retry_after": "99999999999"}})
    failure = await failure_of(client)
    assert failure.retry_after_ms == DEFAULT_LIMITS.retry_after_max_ms
    assert failure.retry_after_capped


async def test_an_unknown_operation_is_not_found(client: ExecutionApiClient) -> None:
    assert (await failure_of(client, request_of("no_such"))).failure_class is FailureClass.NOT_FOUND


async def test_a_reused_key_is_rejected(client: ExecutionApiClient) -> None:
    await client.execute(request_of())
    failure = await failure_of(client, request_of(payload={"item": "another"}))
    assert (failure.failure_class, failure.code) == (FailureClass.REJECTED, "idempotency_key_reused")


@pytest.mark.parametrize(
    "text", ["", "not json", "[]", '{"no": "status"}', '{"status": "completed"', "[" * 3000]
)
async def test_a_reply_that_was_not_agreed_is_invalid(
    client: ExecutionApiClient, state: ApiState, text: str
) -> None:
    state.misbehaviour = state.misbehaviour.merged({"reply_text": text})
    assert (await failure_of(client)).failure_class is FailureClass.BODY_INVALID


async def test_a_failure_inside_a_good_reply_is_final(client: ExecutionApiClient, state: ApiState) -> None:
    text = '{"status": "failed", "error": {"code": "no_luck", "message": "no"}}'
    state.misbehaviour = state.misbehaviour.merged({"reply_text": text})
    failure = await failure_of(client)
    assert (failure.failure_class, failure.code) == (FailureClass.REJECTED, "no_luck")


async def test_a_reply_above_the_bound_is_invalid(state: ApiState) -> None:
    small = replace(DEFAULT_LIMITS, response_bytes=10)
    client = answering(lambda _: httpx.Response(200, content=b"x" * 11), small)
    assert (await failure_of(client)).failure_class is FailureClass.BODY_INVALID


@pytest.mark.parametrize(
    "error", [httpx.ConnectError("refused"), httpx.ConnectTimeout("late"), httpx.PoolTimeout("full")]
)
async def test_nothing_was_sent(error: httpx.TransportError) -> None:
    def reply(request: httpx.Request) -> httpx.Response:
        raise error

    assert (await failure_of(answering(reply))).failure_class is FailureClass.TRANSPORT_BEFORE_DISPATCH


async def test_a_lost_connection_is_ambiguous() -> None:
    def reply(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("reset")

    assert (await failure_of(answering(reply))).failure_class is FailureClass.AMBIGUOUS


def test_every_transport_error_has_a_class() -> None:
    """A new kind of error in httpx counts as sent until it is listed: unsure means never sent twice."""
    kinds = [
        kind
        for _, kind in inspect.getmembers(httpx, inspect.isclass)
        if issubclass(kind, httpx.TransportError)
    ]
    before = {
        kind.__name__ for kind in kinds if failures.transport_class(kind("x")).value.startswith("transport")
    }
    assert before == {
        "ConnectError",
        "ConnectTimeout",
        "PoolTimeout",
        "UnsupportedProtocol",
        "ProxyError",
        "LocalProtocolError",
    }


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "ümlaut"])
async def test_a_token_that_no_header_may_carry_is_never_shown(token: str) -> None:
    client = ExecutionApiClient("http://api.example", StaticTokenSource(value=token), DEFAULT_LIMITS)
    failure = await failure_of(client)
    assert failure.failure_class is FailureClass.AUTH
    assert not token or token not in failure.message


async def test_the_token_is_in_one_header_only(state: ApiState) -> None:
    seen: list[httpx.Request] = []

    def reply(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"status": "completed", "result": {"data": 1}})

    client = answering(reply)
    await client.execute(request_of())
    (request,) = seen
    assert request.headers["authorization"] == f"Bearer {TOKEN}"
    rest = [value for name, value in request.headers.items() if name != "authorization"]
    assert TOKEN not in str(request.url) + str(rest) + request.content.decode() + repr(client)
    assert TOKEN not in repr(StaticTokenSource(value=TOKEN))


async def test_what_is_sent_is_the_agreed_wire() -> None:
    seen: list[httpx.Request] = []

    def reply(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json={"status": "completed", "result": {"data": 1}})

    sent = request_of("a/b", integration_mode="fixture", member_run_ids=("run-1", "run-2"))
    await answering(reply).execute(
        replace(sent, payload=b'{"n": 1180591620717411303424}', invocation_attempt=2)
    )
    (request,) = seen
    assert request.url.raw_path == b"/api/v2/integrations/a%2Fb/execute"
    assert request.content.startswith(b'{"payload":{"n": 1180591620717411303424},')
    body = orjson.loads(request.content)
    assert body["metadata"] == {
        "parent_run_id": "run-1",
        "invocation_attempt": 2,
        "provider_idempotency_key": "batch-1",
        "item_idempotency_keys": ["item-0"],
        "play_node_scope": {"tool_id": "a/b"},
        "member_run_ids": ["run-1", "run-2"],
    }
    assert body["integration_mode"] == "fixture"
    assert request.headers["x-deepline-idempotency-key"] == "batch-1"
    assert request.headers["x-deepline-execute-response-contract"] == "raw-v2"


def test_the_error_survives_pickling() -> None:
    failure = failures.plain("op", FailureClass.AMBIGUOUS, "what")
    back: ExecuteFailedError = pickle.loads(pickle.dumps(ExecuteFailedError(failure)))
    assert isinstance(back, ToolCallError)
    assert (back.failure, back.failure_class) == (failure, FailureClass.AMBIGUOUS)


async def test_a_hostile_value_spoils_its_own_item_on_the_wire(
    client: ExecutionApiClient, state: ApiState
) -> None:
    """B18: NaN, 1e400, half a surrogate or 2,000 nested lists cost their neighbours nothing."""
    hostile = ["NaN", "1e400", '"\\ud800"', "[" * 2_000 + "]" * 2_000, '{"a":' * 2_000 + "1" + "}" * 2_000]
    exact = ["9007199254740993", "1180591620717411303424", '{"__type__":"x"}', '"[{\\"}]"']
    items = ",".join(f'{{"key":"{n}","result":{value}}}' for n, value in enumerate(hostile + exact))
    text = (
        f'{{"status":"completed","toolResponse":{{"rawV2":{{"data":{{"items":[{items}]}}}},"view":"data"}}}}'
    )
    state.misbehaviour = state.misbehaviour.merged({"reply_text": text})
    strategy = strategy_for(await client.tool_metadata("echo", "org"))
    inputs = [{"item": str(n)} for n in range(len(hostile + exact))]
    reply = await client.execute(request_of(strategy.operation, strategy.payload(inputs)))
    outcomes = strategy.split(reply.result, inputs).outcomes
    assert [getattr(outcome, "code", None) for outcome in outcomes] == ["bad_output"] * 5 + [None] * 4
    assert [outcome.output_json.decode() for outcome in outcomes[5:]] == exact  # type: ignore[union-attr]


# real sockets: what a function in process can't do


@pytest.mark.parametrize(
    ("broken", "kind"),
    [
        ({"stall": {"after_bytes": 7}}, FailureClass.BODY_STALLED),
        ({"stall": {"after_bytes": 0}}, FailureClass.BODY_STALLED),
        ({"cut": {"after_bytes": 7}}, FailureClass.BODY_CUT),
    ],
)
async def test_a_broken_body_is_told_apart_and_a_repeat_is_free(
    socket_client: ExecutionApiClient, state: ApiState, broken: dict[str, object], kind: FailureClass
) -> None:
    state.misbehaviour = state.misbehaviour.merged(broken)
    assert (await failure_of(socket_client)).failure_class is kind
    again = await socket_client.execute(request_of())
    assert (again.result, again.credits) == ({"value": "v:a"}, 0)
    assert [entry["charged"] for entry in state.ledger.entries] == [1, 0]


async def test_the_deadline_is_ambiguous_and_the_work_goes_on(
    socket_client: ExecutionApiClient, state: ApiState
) -> None:
    state.misbehaviour = state.misbehaviour.merged({"latency_ms": 300})
    failure = await failure_of(socket_client, request_of(timeout_ms=50))
    assert (failure.failure_class, failure.code) == (FailureClass.AMBIGUOUS, "deadline_exceeded")
    failure = await failure_of(socket_client)
    assert failure.failure_class is FailureClass.IN_PROGRESS


async def test_a_closed_port_is_before_dispatch(served: str) -> None:
    client = ExecutionApiClient("http://127.0.0.1:1", StaticTokenSource(value=TOKEN), DEFAULT_LIMITS)
    assert (await failure_of(client)).failure_class is FailureClass.TRANSPORT_BEFORE_DISPATCH
    assert not await client.is_healthy()
    await client.close()


async def test_a_cancelled_send_gives_its_connection_back(served: str, state: ApiState) -> None:
    one = replace(DEFAULT_LIMITS, tool_calls_in_flight=1)
    client = ExecutionApiClient(served, StaticTokenSource(value=TOKEN), one)
    state.misbehaviour = state.misbehaviour.merged({"latency_ms": 200})
    send = asyncio.create_task(client.execute(request_of()))
    await wait_until_async(lambda: state.batches_in_flight)
    send.cancel()
    with pytest.raises(asyncio.CancelledError):
        await send
    state.reset()
    assert await client.execute(
        request_of("echo", {"item": "b"}, idempotency_key="batch-2", item_idempotency_keys=("b",))
    )
    await client.close()


async def test_many_sends_share_few_connections(served: str) -> None:
    few = replace(DEFAULT_LIMITS, tool_calls_in_flight=4, keepalive_s=0.05)
    client = ExecutionApiClient(served, StaticTokenSource(value=TOKEN), few)

    async def send(n: int) -> ExecuteReply:
        return await client.execute(
            request_of(payload={"item": str(n)}, idempotency_key=f"b{n}", item_idempotency_keys=(f"i{n}",))
        )

    replies = await asyncio.gather(*(send(n) for n in range(60)))
    assert [reply.result["value"] for reply in replies] == [f"v:{n}" for n in range(60)]
    stack = client._execution._own
    assert 0 < stack.idle_count <= 4  # type: ignore[union-attr]
    await wait_until_async(lambda: stack.idle_count == 0)  # type: ignore[union-attr]
    await client.close()


async def test_health(client: ExecutionApiClient) -> None:
    assert await client.is_healthy()
    assert client.origin == "http://api.example"


async def test_an_http_date_is_measured_against_the_reply_whatever_our_clock() -> None:
    headers = {
        "date": "Mon, 30 Nov 2026 12:00:00 GMT",
        "retry-after": "Mon, 30 Nov 2026 12:00:03 GMT",
    }
    for skew_year in (2020, 2030):
        client = answering(
            lambda _: httpx.Response(429, headers=headers),
            utc_now=lambda year=skew_year: datetime(year, 1, 1, tzinfo=UTC),
        )
        assert (await failure_of(client)).retry_after_ms == 3_000


@pytest.mark.parametrize("status", [200, 400])
async def test_a_provider_that_echoes_our_token_stores_it_nowhere(status: int) -> None:
    """Whatever a reply says of the request's own credentials is blackened before anything reads it."""

    def echo(request: httpx.Request) -> httpx.Response:
        seen = request.headers["authorization"]
        spelt = base64.b64encode(seen.removeprefix("Bearer ").encode()).decode()
        body: dict[str, Any] = {"error": {"code": seen, "message": f"bad {spelt}"}}
        if status == 200:
            body = {"status": "completed", "result": {"data": {"seen": seen, "spelt": spelt}}}
        return httpx.Response(status, json=body, headers={"x-deepline-request-id": f"r-{seen}"})

    client = answering(echo)
    if status == 200:
        reply = await client.execute(request_of())
        said = repr(reply)
        assert reply.result["seen"] == "Bearer [secret execution API token]"
    else:
        said = repr(await failure_of(client))
    assert TOKEN not in said
    assert base64.b64encode(TOKEN.encode()).decode() not in said
