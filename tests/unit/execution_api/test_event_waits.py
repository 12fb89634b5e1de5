"""Event waits of tools on the wire: what is sent, what is tried again, what is unknown."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from runtime.errors import ToolOutcomeUnknownError, ToolRejectedError, ToolUnavailableError
from runtime.execution_api.event_waits import ApiEventTools
from runtime.execution_api.tokens import StaticTokenSource
from runtime.execution_api.transport import Transport
from runtime.model import json_value
from runtime.policy.limits import DEFAULT_LIMITS

BOUNDARY = {"boundaryId": "b", "eventKey": "k", "timeoutMs": 5, "timeoutPolicy": {"finalizeOnTimeout": True}}
Reply = Callable[[httpx.Request], httpx.Response]


class Api:
    def __init__(self, *replies: Reply | httpx.Response) -> None:
        self.seen: list[httpx.Request] = []
        self._replies = list(replies)
        http = httpx.AsyncClient(transport=httpx.MockTransport(self._answer))
        transport = Transport(base_url="http://api", limits=DEFAULT_LIMITS, in_flight=4, given=http)
        tokens = StaticTokenSource(value="t")
        self.tools = ApiEventTools(transport, tokens, DEFAULT_LIMITS, sleep=self._sleep)

    async def _sleep(self, seconds: float) -> None: ...

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.seen.append(request)
        reply = self._replies.pop(0)
        return reply(request) if callable(reply) else reply

    async def arm(self, *, repeats: bool = False) -> Any:
        return await self.tools.arm("ask", "org", {"q": 1}, {"runId": "r"}, BOUNDARY, repeats=repeats)


def cut(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadError("gone", request=request)


async def test_the_phases_go_to_the_tools_own_path() -> None:
    api = Api(*[httpx.Response(200, json=BOUNDARY)] * 3)
    prepared = await api.tools.prepare("ask", "org", {"q": 1}, {"runId": "r"})
    assert (prepared.event_key, prepared.timeout_ms, prepared.finalizes) == ("k", 5, True)
    assert (await api.arm()).stated == BOUNDARY
    await api.tools.time_out("ask", "org", {"q": 1}, {"runId": "r"}, BOUNDARY)
    bodies = [json_value.loads(request.content) for request in api.seen]
    assert [body["phase"] for body in bodies] == ["prepare", "arm", "timeout"]
    assert bodies[1] == {"phase": "arm", "payload": {"q": 1}, "context": {"runId": "r"}, "boundary": BOUNDARY}
    assert {request.url.path for request in api.seen} == {"/api/v2/plays/runtime-tools/ask/event-wait"}
    assert api.seen[0].headers["authorization"] == "Bearer t"


@pytest.mark.parametrize("doubt", [cut, httpx.Response(503), httpx.Response(200, content=b"{")])
async def test_a_doubtful_arming_is_tried_again_only_where_that_is_harmless(doubt: Any) -> None:
    api = Api(doubt)
    with pytest.raises(ToolOutcomeUnknownError):
        await api.arm()
    assert len(api.seen) == 1
    api = Api(doubt, httpx.Response(200, json=BOUNDARY))
    assert (await api.arm(repeats=True)).event_key == "k"


async def test_a_refusal_is_final_and_says_why() -> None:
    refused = httpx.Response(422, json={"error": {"code": "bad_channel", "message": "no such channel"}})
    with pytest.raises(ToolRejectedError, match="no such channel") as met:
        await Api(refused).arm(repeats=True)
    assert met.value.code == "bad_channel"


async def test_the_tools_word_on_a_timeout_is_told() -> None:
    late = httpx.Response(408, json={"error": {"code": "hitl_timeout", "message": "nobody answered"}})
    api = Api(late, late, late)
    with pytest.raises(ToolUnavailableError) as met:
        await api.tools.time_out("ask", "org", {}, {}, BOUNDARY)
    assert met.value.code == "hitl_timeout"


async def test_a_boundary_without_a_key_is_refused() -> None:
    with pytest.raises(ToolRejectedError, match="eventKey"):
        await Api(httpx.Response(200, json={"timeoutMs": 5})).tools.prepare("ask", "org", {}, {})
