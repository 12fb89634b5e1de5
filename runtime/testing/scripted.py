"""The world outside a play, as a test scripts it: tools, answers to fetches, secrets."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any
from urllib.parse import urlsplit

from runtime.errors import EgressRefusedError, PlaylaneError, ToolCallError, ToolRejectedError
from runtime.model import json_value
from runtime.model.call import Answer, AnswerState, Call, Usage
from runtime.model.call_options import NO_OPTIONS, CallOptions
from runtime.model.fetch import EgressReply, EgressRequest
from runtime.model.kept_value import plain
from runtime.model.tool import ToolMetadata


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalled:
    """A call that reached a tool."""

    tool: str
    input: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A request that left; `headers` with the secrets in them."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchAnswer:
    """What a scripted fetch is answered."""

    status: int = 200
    body: Any = b""  # bytes or text; anything else goes as JSON
    headers: dict[str, str] = field(default_factory=dict)


class ScriptedTools:
    """Answers of tools: a value, an error, or a function of the input; `ToolCallError`s are failures."""

    def __init__(self, tools: Mapping[str, Any]) -> None:
        self.called: list[ToolCalled] = []
        self._tools = dict(tools)
        self._answers: dict[str, Answer] = {}

    async def metadata(self, tool: str, org_id: str) -> ToolMetadata:
        if tool not in self._tools:
            known = ", ".join(sorted(self._tools)) or "none"
            raise ToolRejectedError(
                f'this test has no tool "{tool}" (it has: {known}): give run_play(tools={{"{tool}": ...}})',
                tool=tool,
                code="unknown_tool",
            )
        return ToolMetadata(tool=tool, provider=tool)

    async def auth_scope(self, tool: str, org_id: str, *, refresh: bool = False) -> str | None:
        return None

    async def call(self, call: Call, lane: str, options: CallOptions = NO_OPTIONS) -> Answer:
        """Each key is answered once; later askers get the same."""
        kept = self._answers.get(call.key)
        if kept is not None:
            return Answer(
                key=call.key,
                state=kept.state,
                output=kept.output,
                error=kept.error,
                cached=True,
                run_id=kept.run_id,
            )
        self.called.append(ToolCalled(tool=call.tool, input=call.input))
        answer = self._answers[call.key] = await self._made(call)
        return answer

    async def store_usage(self) -> None: ...

    def take_usage(self) -> tuple[Usage, ...]:
        return ()

    def give_back_usage(self, usage: tuple[Usage, ...]) -> None: ...

    async def _made(self, call: Call) -> Answer:
        try:
            given = await _given(self._tools[call.tool], call.input)
            output = json_value.dumps(json_value.check(plain(given)[0]))
        except ToolCallError as error:
            failed = {**error.to_payload(), "tool": call.tool}
            return Answer(key=call.key, state=AnswerState.FAILED, error=failed, run_id=call.run_id)
        return Answer(key=call.key, state=AnswerState.COMPLETED, output=output, run_id=call.run_id)


class ScriptedEgress:
    """Answers by URL: whole, without its query, or its origin. A value, an error, or a function of the request."""

    def __init__(self, fetches: Mapping[str, Any]) -> None:
        self.fetched: list[Fetched] = []
        self._fetches = dict(fetches)

    def is_allowed(self, url: str) -> bool:
        return False

    async def send(self, request: EgressRequest, *, total_ms: float) -> EgressReply:
        fetched = Fetched(
            method=request.method,
            url=request.url,
            headers={**request.headers, **request.secret_headers},
            body=request.body,
        )
        self.fetched.append(fetched)
        given = await _given(self._script(request.url), fetched)
        return _reply(given, request.url)

    def _script(self, url: str) -> Any:
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        for name in (url, url.partition("?")[0], f"{origin}/", origin):
            if name in self._fetches:
                return self._fetches[name]
        raise EgressRefusedError(
            f'this test answers no fetch of {url}: give run_play(fetches={{"{origin}": ...}})'
        )


class ScriptedSecrets:
    """A SecretSource of names and values."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._secrets = dict(secrets)

    async def secret(self, org_id: str, name: str, play: str) -> str | None:
        return self._secrets.get(name)


async def _given(script: Any, asked: Any) -> Any:
    given = script(asked) if isinstance(script, Callable) and not isinstance(script, type) else script
    given = await given if isawaitable(given) else given
    if isinstance(given, type) and issubclass(given, PlaylaneError):
        given = given("scripted by the test")
    if isinstance(given, BaseException):
        raise given
    return given


def _reply(given: Any, url: str) -> EgressReply:
    if isinstance(given, int) and not isinstance(given, bool):
        given = FetchAnswer(status=given)
    answer = given if isinstance(given, FetchAnswer) else FetchAnswer(body=given)
    headers = {name.lower(): value for name, value in answer.headers.items()}
    body = answer.body
    if isinstance(body, str):
        body = body.encode()
        headers.setdefault("content-type", "text/plain; charset=utf-8")
    elif not isinstance(body, bytes):
        body = json.dumps(body).encode()
        headers.setdefault("content-type", "application/json")
    return EgressReply(status=answer.status, reason="", url=url, headers=headers, body=body)
