"""`resolve_secret`: who has a value, who has none, what is tried again, and that nothing is said of a value."""

from dataclasses import replace

import httpx
import pytest

from examples.execution_api.execution import ApiState
from runtime.errors import SecretUnavailableError
from runtime.execution_api.client import ExecutionApiClient
from runtime.policy.limits import DEFAULT_LIMITS
from tests.unit.execution_api.conftest import TOKEN, answering

LIMITS = replace(DEFAULT_LIMITS, control_delays_ms=(0.0, 0.0))
VALUE = "s3cr3t-value"


async def test_the_reference_api_gives_a_secret(state: ApiState, client: ExecutionApiClient) -> None:
    state.secrets = {"KEY": VALUE}
    assert await client.secrets.secret("org", "KEY", "play") == VALUE
    assert await client.secrets.secret("org", "OTHER", "play") is None


@pytest.mark.parametrize("status", [408, 429, 502, 503, 504, 522])
async def test_what_may_pass_is_tried_again(status: int) -> None:
    asked: list[httpx.Request] = []

    def reply(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(status) if len(asked) < 3 else httpx.Response(200, json={"value": VALUE})

    client = answering(reply, LIMITS)
    assert await client.secrets.secret("org", "KEY", "play") == VALUE
    operations = [
        (one.headers["x-deepline-operation-id"], one.headers["x-deepline-operation-attempt"]) for one in asked
    ]
    assert {operation for operation, _ in operations} == {operations[0][0]}
    assert [attempt for _, attempt in operations] == ["1", "2", "3"]
    assert b'"action":"resolve_secret"' in asked[0].content
    assert b'"playName":"play"' in asked[0].content
    assert asked[0].headers["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize(
    ("reply", "says", "times"),
    [
        (httpx.Response(403), "HTTP 403", 1),
        (httpx.Response(500), "HTTP 500", 1),
        (httpx.Response(503), "HTTP 503", 3),
        (httpx.Response(429, headers={"retry-after": "3600"}), "HTTP 429", 1),
        (httpx.Response(200, text=f"<html>{VALUE}"), "not JSON", 1),
        (httpx.Response(200, json=[VALUE]), "holds no value", 1),
        (httpx.Response(200, json={"value": ""}), "holds no value", 1),
        (httpx.Response(200, json={"value": 7}), "holds no value", 1),
        (httpx.ConnectError("no"), "did not answer", 3),
    ],
)
async def test_why_there_is_none_now(reply: httpx.Response | Exception, says: str, times: int) -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        if isinstance(reply, Exception):
            raise reply
        return reply

    with pytest.raises(SecretUnavailableError) as none:
        await answering(answer, LIMITS).secrets.secret("org", "KEY", "play")
    assert says in str(none.value)
    assert f"attempt {times}" in str(none.value)
    assert len(asked) == times
    assert VALUE not in str(none.value)
