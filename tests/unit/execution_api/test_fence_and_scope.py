"""The fenced path, its attestation, auth scopes, two origins and the fault header."""

import asyncio
from typing import Any

import httpx
import orjson
import pytest

from examples.execution_api.app import create_app
from examples.execution_api.execution import ApiState
from runtime.errors import ExecuteFailedError, PlaylaneError, ServiceUnreachableError, ToolRejectedError
from runtime.execution_api.client import ExecutionApiClient
from runtime.execution_api.tokens import StaticTokenSource
from runtime.model.failure import FailureClass
from runtime.policy.limits import DEFAULT_LIMITS, Limits
from tests.unit.execution_api.conftest import TOKEN, answering, request_of
from tests.waiting import wait_until_async


async def no_sleep(seconds: float) -> None: ...


async def test_a_fenced_request_goes_by_its_path_and_is_attested(client: ExecutionApiClient) -> None:
    reply = await client.execute(request_of("echo_fenced", is_fenced=True))
    assert reply.result == {"value": "v:a"} and reply.fence_attested
    plain = await client.execute(request_of("echo", idempotency_key="b2", item_idempotency_keys=("i2",)))
    assert not plain.fence_attested
    with pytest.raises(ExecuteFailedError, match="fenced path only"):
        await client.execute(request_of("echo_fenced"))


async def test_the_body_says_the_fence_version_and_the_auth_scope() -> None:
    bodies: list[Any] = []

    def reply(request: httpx.Request) -> httpx.Response:
        bodies.append((request.url.path, orjson.loads(request.content)["metadata"]))
        return httpx.Response(200, json={"status": "completed"})

    client = answering(reply)
    await client.execute(request_of(is_fenced=True, execution_auth_scope_digest="d1"))
    await client.execute(request_of())
    (fenced_path, fenced), (plain_path, plain) = bodies
    assert fenced_path == "/api/v2/integrations/echo/execute-fenced-v1"
    assert (fenced["invocation_fence_version"], fenced["execution_auth_scope_digest"]) == (1, "d1")
    assert plain_path == "/api/v2/integrations/echo/execute"
    assert not {"invocation_fence_version", "execution_auth_scope_digest"} & set(plain)


async def test_the_body_says_where_in_its_play_a_call_is_asked() -> None:
    scopes: list[Any] = []

    def reply(request: httpx.Request) -> httpx.Response:
        scopes.append(orjson.loads(request.content)["metadata"]["play_node_scope"])
        return httpx.Response(200, json={"status": "completed"})

    client = answering(reply)
    for node in (("find", "email", "companies"), ("find",), ()):
        await client.execute(request_of(node=node))
    in_row = {"tool_id": "echo", "call_key": "find", "column": "email", "table_namespace": "companies"}
    assert scopes == [in_row, {"tool_id": "echo", "call_key": "find"}, {"tool_id": "echo"}]


async def test_attestation_is_asked_each_time(client: ExecutionApiClient, state: ApiState) -> None:
    assert await client.attests_fence()
    state.misbehaviour = state.misbehaviour.merged({"attest_fence": False})
    assert not await client.attests_fence()


@pytest.mark.parametrize(
    ("replies", "attests"),
    [
        (
            [httpx.Response(503), httpx.Response(200, headers={"x-deepline-durable-invocation-fence": "v1"})],
            True,
        ),
        ([httpx.Response(200, headers={"x-deepline-durable-invocation-fence": "v2"})], False),
        ([httpx.Response(404, headers={"x-deepline-durable-invocation-fence": "v1"})], False),
        ([httpx.Response(302, headers={"location": "http://inside/"})], False),
    ],
)
async def test_only_a_good_answer_attests(replies: list[httpx.Response], attests: bool) -> None:
    client = answering(lambda _: replies.pop(0), sleep=no_sleep)
    assert await client.attests_fence() is attests


async def test_an_api_that_is_silent_attests_nothing() -> None:
    def reply(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    with pytest.raises(ServiceUnreachableError, match="fence"):
        await answering(reply, sleep=no_sleep).attests_fence()


async def test_a_broken_fenced_reply_still_carries_its_attestation(
    socket_client: ExecutionApiClient, state: ApiState
) -> None:
    state.misbehaviour = state.misbehaviour.merged({"cut": {"after_bytes": 5}})
    with pytest.raises(ExecuteFailedError) as caught:
        await socket_client.execute(request_of("echo_fenced", is_fenced=True))
    assert caught.value.failure.fence_attested
    assert caught.value.failure_class is FailureClass.BODY_CUT


async def test_an_auth_scope_is_kept_refreshed_and_looked_up_once(state: ApiState) -> None:
    clock, asked = [0.0], []
    app = httpx.ASGITransport(app=create_app(state))

    async def reply(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        return await app.handle_async_request(request)

    client = answering(reply, now_s=lambda: clock[0])  # type: ignore[arg-type]
    assert await client.auth_scope("echo", "org") is None
    state.misbehaviour = state.misbehaviour.merged({"auth_scopes": {"echo": "s1"}})
    assert await client.auth_scope("echo", "org") is None, "kept, also where there is none"
    assert await client.auth_scope("echo", "org", refresh=True) == "s1"
    assert await asyncio.gather(*(client.auth_scope("echo", "org") for _ in range(9))) == ["s1"] * 9
    assert asked == ["/api/v2/plays/runtime-tools/echo/auth-scope"] * 2
    many = await asyncio.gather(*(client.auth_scope("echo", "org", refresh=True) for _ in range(9)))
    assert many == ["s1"] * 9 and len(asked) == 3
    clock[0] += DEFAULT_LIMITS.auth_scope_ttl_s + 1
    await client.auth_scope("echo", "org")
    assert len(asked) == 4


@pytest.mark.parametrize(
    ("refused", "kind"),
    [
        (httpx.Response(404, json={"error": {"code": "unknown_tool"}}), ToolRejectedError),
        (httpx.Response(200, json={}), ToolRejectedError),
        (httpx.Response(200, json={"digest": " "}), ToolRejectedError),
        (httpx.Response(307, headers={"location": "http://elsewhere.example/"}), ToolRejectedError),
        (httpx.Response(500), ServiceUnreachableError),
    ],
)
async def test_a_refused_auth_scope_is_never_kept(refused: httpx.Response, kind: type[PlaylaneError]) -> None:
    replies = [refused, httpx.Response(200, json={"digest": "s1"})]
    client = answering(lambda _: replies.pop(0), sleep=no_sleep)
    with pytest.raises(kind, match="auth scope of tool t can't be looked up"):
        await client.auth_scope("t", "org")
    assert await client.auth_scope("t", "org") == "s1"


async def test_a_tool_without_a_scope_says_so() -> None:
    gone = httpx.Response(404, json={"error": {"code": "no_auth_scope"}})
    assert await answering(lambda _: gone).auth_scope("t", "org") is None


async def test_a_call_under_an_old_scope_is_refused(client: ExecutionApiClient, state: ApiState) -> None:
    state.misbehaviour = state.misbehaviour.merged({"auth_scopes": {"echo": "s2"}})
    with pytest.raises(ExecuteFailedError) as caught:
        await client.execute(request_of(execution_auth_scope_digest="s1"))
    assert caught.value.failure_class is FailureClass.AUTH_SCOPE_CHANGED and caught.value.failure.not_charged
    reply = await client.execute(request_of(execution_auth_scope_digest="s2"))
    assert reply.result == {"value": "v:a"}
    assert [(entry["status"], entry["charged"]) for entry in state.ledger.entries] == [(409, 0), (200, 1)]


async def test_look_ups_and_executions_may_have_two_origins() -> None:
    hosts: list[tuple[str, str]] = []

    def reply(request: httpx.Request) -> httpx.Response:
        hosts.append((request.url.host, request.url.path.rsplit("/", 1)[-1]))
        return httpx.Response(200, json={"status": "completed", "provider": "p", "digest": None})

    http = httpx.AsyncClient(transport=httpx.MockTransport(reply))
    client = ExecutionApiClient(
        "http://relay.example/",
        StaticTokenSource(value=TOKEN),
        DEFAULT_LIMITS,
        http,
        control_url="http://control.example/",
    )
    await client.metadata("t", "org")
    await client.auth_scope("t", "org")
    await client.execute(request_of())
    await client.attests_fence()
    assert hosts == [
        ("control.example", "t"),
        ("control.example", "auth-scope"),
        ("relay.example", "execute"),
        ("relay.example", "healthz"),
    ]
    assert client.origin == "http://relay.example"


async def test_each_origin_has_a_cap_of_its_own(served: str, state: ApiState) -> None:
    """One long execution fills its cap; look-ups go on beside it."""
    limits = Limits(tool_calls_in_flight=1, control_calls_in_flight=1)
    client = ExecutionApiClient(served, StaticTokenSource(value=TOKEN), limits)
    state.misbehaviour = state.misbehaviour.merged({"latency_ms": 60_000})
    sending = asyncio.create_task(client.execute(request_of(timeout_ms=60_000)))
    await wait_until_async(lambda: state.items_in_flight)
    assert (await client.metadata("echo", "org")).provider == "fakeprov"
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    await client.close()


async def test_a_control_reply_is_small() -> None:
    client = answering(lambda _: httpx.Response(200, content=b" " * (DEFAULT_LIMITS.control_body_bytes + 1)))
    with pytest.raises(ToolRejectedError, match="a body above"):
        await client.metadata("t", "org")


async def test_every_failure_names_its_request() -> None:
    def reply(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("reset")

    with pytest.raises(ExecuteFailedError, match="request pl-") as caught:
        await answering(reply).execute(request_of())
    assert caught.value.failure.request_id.startswith("pl-")


async def test_a_fault_header_is_for_its_own_request(state: ApiState, limits: Limits) -> None:
    http = httpx.AsyncClient(transport=httpx.ASGITransport(app=create_app(state)))
    fault = orjson.dumps({"answer": {"status": 503, "after_work": True}}).decode()
    faulty = ExecutionApiClient(
        "http://api.example", StaticTokenSource(value=TOKEN), limits, http, test_fault=fault
    )
    fine = ExecutionApiClient("http://api.example", StaticTokenSource(value=TOKEN), limits, http)
    for _ in range(2):
        with pytest.raises(ExecuteFailedError) as caught:
            await faulty.execute(request_of())
        assert caught.value.failure.status == 503
    assert (await fine.execute(request_of())).result == {"value": "v:a"}
    seen = [(entry["status"], entry["charged"], entry["replayed"]) for entry in state.ledger.entries]
    assert seen == [(503, 1, False), (503, 0, True), (200, 0, True)]
    bad = ExecutionApiClient(
        "http://api.example", StaticTokenSource(value=TOKEN), limits, http, test_fault="["
    )
    with pytest.raises(ExecuteFailedError, match="HTTP 400"):
        await bad.execute(request_of())


async def test_refused_connections_are_before_dispatch_and_pass(
    socket_client: ExecutionApiClient, state: ApiState, served: str
) -> None:
    await socket_client.execute(request_of())
    async with httpx.AsyncClient(base_url=served) as control:
        assert (await control.post("/_control", json={"refuse_ms": 200})).status_code == 200
    with pytest.raises(ExecuteFailedError) as caught:
        await socket_client.execute(request_of())
    assert caught.value.failure_class is FailureClass.TRANSPORT_BEFORE_DISPATCH
    await wait_until_async(socket_client.is_healthy)
    assert len(state.ledger.entries) == 1


@pytest.mark.parametrize("work_done", [True, False])
async def test_a_dropped_connection_is_ambiguous_and_the_ledger_knows(
    socket_client: ExecutionApiClient, state: ApiState, work_done: bool
) -> None:
    state.misbehaviour = state.misbehaviour.merged({"drop": {"work_done": work_done}})
    with pytest.raises(ExecuteFailedError) as caught:
        await socket_client.execute(request_of())
    assert caught.value.failure_class is FailureClass.AMBIGUOUS
    (entry,) = state.ledger.entries
    assert (entry["status"], entry["code"], entry["charged"]) == (0, "connection_dropped", int(work_done))


async def test_without_its_fence_a_repeat_is_charged_again(
    client: ExecutionApiClient, state: ApiState
) -> None:
    for attests, charged in ((True, [1, 0]), (False, [1, 1])):
        state.ledger.clear()
        state.misbehaviour = state.misbehaviour.merged({"attest_fence": attests})
        for _ in range(2):
            await client.execute(request_of("echo_fenced", is_fenced=True))
        assert [entry["charged"] for entry in state.ledger.entries] == charged


async def test_only_a_served_api_can_drop_connections(client: ExecutionApiClient, state: ApiState) -> None:
    state.misbehaviour = state.misbehaviour.merged({"drop": {}})
    with pytest.raises(ExecuteFailedError, match="only a served API"):
        await client.execute(request_of())
