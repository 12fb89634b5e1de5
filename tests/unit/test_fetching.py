"""Fetches in the engine: retries, pace, what is kept for whom, arguments."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from runtime.context.fetching import FetchResponse, fetch_request
from runtime.context.secrets import SecretHandle, Secrets
from runtime.engine.fetching import Fetches, FetchParts, response_json
from runtime.engine.loop_clock import LoopClock
from runtime.engine.secret_values import SecretValues
from runtime.engine.tool_calls import CallContext
from runtime.errors import (
    EgressRefusedError,
    FetchFailedError,
    FetchTimeoutError,
    JsonValueError,
    PlayDefinitionError,
    RowWaitsError,
    SecretTaintError,
    SecretUnavailableError,
)
from runtime.known_secrets import KnownSecrets
from runtime.model import json_value
from runtime.model.fetch import EgressReply, EgressRequest, FetchRequest
from runtime.model.rate_scope import RateScope
from runtime.policy.limits import DEFAULT_LIMITS
from runtime.policy.redacting import Redaction
from runtime.testing.scripted import ScriptedSecrets

LIMITS = replace(DEFAULT_LIMITS, fetch_retry_ms=1.0)
CONTEXT = CallContext(org_id="org", run_id="run")
SECRET = "s3cr3t-value"


class Net:
    """An Egress that answers in turn."""

    def __init__(self, *answers: Any, allows: bool = False) -> None:
        self.answers = list(answers)
        self.sent: list[EgressRequest] = []
        self.allows = allows

    async def send(self, request: EgressRequest, *, total_ms: float) -> EgressReply:
        self.sent.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return EgressReply(status=answer, reason="", url=request.url, headers={}, body=b"ok")

    def is_allowed(self, url: str) -> bool:
        return self.allows


class Ticket:
    def __init__(self, far_ms: float, line: list[str]) -> None:
        self.far_ms, self.line = far_ms, line
        self.closed_ms = 0.0

    async def due(self, hold_ms: float = inf) -> float:
        return self.far_ms if self.far_ms > hold_ms else 0.0

    def spacing_ms(self, items: int) -> float:
        return 0.0

    async def later(self, items: int, due_ms: float) -> float:
        return due_ms

    async def confirm(self, most: int, *, whole: bool = False) -> tuple[int, float]:
        return (0, self.closed_ms) if self.closed_ms else (most, 0.0)

    def sent(self) -> None:
        self.line.append("sent")

    async def limited(self, retry_after_ms: float | None) -> None: ...

    async def succeeded(self) -> None: ...

    def free(self) -> None:
        self.line.append("free")


class Pace:
    def __init__(self, far_ms: float = 0.0) -> None:
        self.far_ms, self.closed_ms = far_ms, 0.0
        self.scopes: list[RateScope] = []
        self.line: list[str] = []

    async def reserve(self, scope: RateScope, items: int, turn: object = "") -> Ticket:
        self.scopes.append(scope)
        ticket = Ticket(self.far_ms, self.line)
        ticket.closed_ms = self.closed_ms
        return ticket


def world(*answers: Any, far_ms: float = 0.0, allows: bool = False) -> tuple[Fetches, Net, Pace]:
    net, pace, known = Net(*answers, allows=allows), Pace(far_ms), KnownSecrets()
    secrets = SecretValues((ScriptedSecrets({"KEY": SECRET}),), LIMITS, known=known)
    parts = FetchParts(egress=net, pacer=pace, secrets=secrets, limits=LIMITS, clock=LoopClock(), known=known)
    return Fetches(parts), net, pace


def request(url: str = "https://api.example/", **more: Any) -> FetchRequest:
    names = (
        "headers",
        "params",
        "body",
        "json",
        "auth",
        "idempotency_key",
        "timeout_ms",
        "stale_after_seconds",
    )
    given: Any = {**dict.fromkeys(names), "method": "GET", "url": url, **more}
    return fetch_request("here", given.pop("url"), limits=LIMITS, **given)


@pytest.mark.parametrize(
    ("status", "lasting"), [(200, True), (404, True), (408, False), (425, False), (429, False), (503, False)]
)
async def test_any_status_is_an_answer_and_some_are_for_this_run_only(status: int, lasting: bool) -> None:
    fetches, net, pace = world(status)
    made = await fetches.make(CONTEXT, "a", request(), "play")
    assert json_value.loads(made.output)["status"] == status
    assert made.lasting is lasting
    assert len(net.sent) == 1
    assert [(scope.lane, scope.org_id) for scope in pace.scopes] == [("generic_http", "org")]
    assert pace.line == ["sent", "free"]


@pytest.mark.parametrize(
    "url",
    [
        "https://ada:hidden@api.example/a?token=hidden",
        "https://api.example/a#hidden",
        "//a:hidden@b@c/x?hidden",
    ],
)
async def test_a_failure_names_the_url_without_what_may_be_secret(url: str) -> None:
    """Credentials stood in the sheet's error text."""
    fetches, _, _ = world(EgressRefusedError("it carries credentials"))
    with pytest.raises(
        EgressRefusedError, match=r"GET (https:)?//[a-z.]+/[ax] failed in attempt 1"
    ) as refused:
        await fetches.make(CONTEXT, "a", replace(request(), url=url), "play")
    assert "hidden" not in str(refused.value)


async def test_a_lost_answer_is_asked_for_again_where_that_is_safe() -> None:
    lost = FetchFailedError("cut")
    fetches, net, pace = world(lost, lost, 200)
    await fetches.make(CONTEXT, "a", request(), "play")
    assert len(net.sent) == 3
    assert pace.line == ["sent", "free"] * 3  # each attempt takes its own place
    fetches, net, _ = world(lost)
    with pytest.raises(
        FetchFailedError, match=r'ctx.fetch\("a"\): GET https://api.example/ failed in attempt 3: cut'
    ):
        await fetches.make(CONTEXT, "a", request(), "play")
    fetches, net, _ = world(lost, 200)
    await fetches.make(CONTEXT, "a", request(method="POST", idempotency_key="k"), "play")
    assert [one.headers["idempotency-key"] for one in net.sent] == ["k", "k"]


async def test_a_lane_that_closes_while_its_turn_comes_lets_the_row_wait() -> None:
    fetches, net, pace = world(200)
    pace.closed_ms = LIMITS.hold_ms + 1
    with pytest.raises(RowWaitsError) as caught:
        await fetches.make(CONTEXT, "a", request(), "play")
    assert caught.value.wait.due_ms == LIMITS.hold_ms + 1
    assert not net.sent and pace.line == ["free"]


@pytest.mark.parametrize("error", [EgressRefusedError("inside"), FetchTimeoutError("late")])
async def test_refusals_and_deadlines_are_final(error: Exception) -> None:
    fetches, net, _ = world(error, 200)
    with pytest.raises(type(error)):
        await fetches.make(CONTEXT, "a", request(), "play")
    assert len(net.sent) == 1


async def test_a_turn_far_away_is_not_waited_for_here() -> None:
    fetches, net, pace = world(200, far_ms=60_000)
    with pytest.raises(RowWaitsError) as later:
        await fetches.make(CONTEXT, "a", request(), "play")
    assert later.value.wait.due_ms == 60_000
    assert net.sent == []
    assert pace.line == ["free"]


async def test_secrets_are_filled_in_at_the_last_moment_and_over_tls_only() -> None:
    secrets = Secrets(lambda name: asyncio.sleep(0, name))
    fetches, net, _ = world(200)
    asked = request(auth=secrets.bearer("KEY"))
    assert SECRET not in repr(asked)
    await fetches.make(CONTEXT, "a", fetches.checked(CONTEXT, "a", asked), "play")
    assert net.sent[0].secret_headers == {"authorization": f"Bearer {SECRET}"}
    assert SECRET not in repr(net.sent[0])
    plain = request("http://api.example/", auth=secrets.bearer("KEY"))
    with pytest.raises(SecretTaintError, match="over TLS only"):
        fetches.checked(CONTEXT, "a", plain)
    allowed, _, _ = world(200, allows=True)
    allowed.checked(CONTEXT, "a", plain)
    with pytest.raises(SecretUnavailableError):
        await fetches.make(CONTEXT, "a", request(auth=secrets.bearer("OTHER")), "play")


async def test_an_error_that_quotes_a_secret_is_blackened() -> None:
    fetches, _, _ = world(FetchFailedError(f"no answer about {SECRET}"))
    await fetches._parts.secrets.value("org", "KEY", "play")
    with pytest.raises(FetchFailedError) as failed:
        await fetches.make(CONTEXT, "a", request(), "play")
    assert "[secret KEY]" in str(failed.value)
    assert SECRET not in str(failed.value)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"method": "FROB"}, "method is one of"),
        ({"method": 3}, "method is one of"),
        ({"method": "POST"}, "idempotency_key"),
        ({"method": "DELETE", "headers": {"x-other": "1"}}, "idempotency_key"),
        ({"body": "x"}, "a GET has no body"),
        ({"method": "POST", "body": "x", "json": {}, "idempotency_key": "1"}, "not both"),
        ({"method": "POST", "body": 3, "idempotency_key": "1"}, "body is text or bytes"),
        ({"method": "POST", "json": {1}, "idempotency_key": "1"}, "json can't be sent"),
        ({"headers": ["a"]}, "headers is a mapping"),
        ({"headers": {"host": "x"}}, "headers can't hold 'host'"),
        ({"headers": {"a b": "x"}}, "headers can't hold"),
        ({"headers": {"a": "x\r\ny: z"}}, 'headers["a"] is text of printable ASCII'),
        ({"headers": {"a": 1}}, 'headers["a"] is text of printable ASCII'),
        ({"params": "q=1"}, "params is a mapping"),
        ({"params": {"q": None}}, "params['q'] is text or a number"),
        ({"auth": "Bearer x"}, "auth is made by ctx.secrets"),
        ({"timeout_ms": 0}, "timeout_ms is a number from 1 up"),
        ({"timeout_ms": "5"}, "timeout_ms is a number"),
        ({"stale_after_seconds": -1}, "stale_after_seconds is a number from 0 up"),
        ({"url": 7}, "url is the text of an http(s) URL"),
        ({"url": " "}, "url is the text of an http(s) URL"),
    ],
)
def test_arguments_are_named_with_the_fix(given: dict[str, Any], says: str) -> None:
    with pytest.raises(PlayDefinitionError) as wrong:
        request(**given)
    assert str(wrong.value).startswith("here: ")
    assert says in str(wrong.value)
    assert "Bearer x" not in str(wrong.value)


@pytest.mark.parametrize(
    "misuse",
    [
        lambda handle: request(handle),
        lambda handle: request(params={"key": handle}),
        lambda handle: request(headers={"x-key": handle}),
    ],
)
def test_handles_where_they_would_leak(misuse: Callable[[Any], Any]) -> None:
    handle = SecretHandle("KEY", lambda name: asyncio.sleep(0, name))
    with pytest.raises(SecretTaintError, match=r"auth=ctx\.secrets"):
        misuse(handle)
    with pytest.raises(JsonValueError, match="never stored"):
        json_value.check({"a": handle})


@pytest.mark.parametrize("name", ["", " ", "s3cr3t value with blanks", 3, None, "a" * 101])
def test_a_secrets_name_is_no_value(name: Any) -> None:
    secrets = Secrets(lambda name: asyncio.sleep(0, name))
    for use in (secrets.get, secrets.bearer, lambda one: secrets.header(one, "x-key")):
        with pytest.raises(PlayDefinitionError) as wrong:
            use(name)
        assert not isinstance(name, str) or len(name) < 9 or name not in str(wrong.value)


def test_equal_requests_are_one_and_others_are_not() -> None:
    secrets = Secrets(lambda name: asyncio.sleep(0, name))
    same = {request(auth=secrets.bearer("KEY")).identity(), request(auth=secrets.bearer("KEY")).identity()}
    others = {
        request().identity(),
        request(params={"a": 1}).identity(),
        request(headers={"a": "1"}).identity(),
        request(auth=secrets.bearer("KEY2")).identity(),
        request(method="POST", body="a", idempotency_key="1").identity(),
        request(method="POST", body="b", idempotency_key="1").identity(),
    }
    assert len(same) == 1
    assert len(same | others) == 7
    assert request(stale_after_seconds=5, timeout_ms=7).identity() == request().identity()


@pytest.mark.parametrize(
    ("body", "content_type", "text"),
    [
        ("grüße".encode(), "text/plain; charset=utf-8", "grüße"),
        ("grüße".encode("latin-1"), "text/html; charset=ISO-8859-1", "grüße"),
        (b"\xff\x00\xfe", "application/octet-stream", None),
        (b"a\0b", "text/plain", None),
        (b"x", "text/plain; charset=no-such-thing", None),
        (b"", "", ""),
    ],
)
def test_bodies_come_back_as_they_were(body: bytes, content_type: str, text: str | None) -> None:
    reply = EgressReply(
        status=200, reason="OK", url="https://a.example/", headers={"content-type": content_type}, body=body
    )
    said = json_value.loads(json_value.dumps(json_value.check(response_json(reply, Redaction({})))))
    response = FetchResponse(said)
    assert response.content == body
    if text is not None:
        assert response.text == text
    assert response == FetchResponse(response.to_json())


def test_a_response() -> None:
    response = FetchResponse(
        {
            "status": 404,
            "reason": "Not Found",
            "url": "https://a.example/",
            "headers": {},
            "text": '\ufeff{"a": 1}',
        }
    )
    assert (response.ok, response.json()) == (False, {"a": 1})
    with pytest.raises(FetchFailedError, match="HTTP 404 Not Found"):
        response.raise_for_status()
    with pytest.raises(JsonValueError, match="is no JSON"):
        FetchResponse({"status": 200, "url": "u", "headers": {}, "text": "<html>"}).json()


async def test_a_secrets_value_is_asked_for_once_a_minute_and_never_kept_when_it_fails() -> None:
    asked: list[str] = []
    now = [0.0]

    class Source:
        async def secret(self, org_id: str, name: str, play: str) -> str | None:
            asked.append(name)
            if name == "DOWN" and len(asked) < 3:
                raise SecretUnavailableError("not now")
            return "v" * 5

    values = SecretValues((Source(),), LIMITS, known=KnownSecrets(), now_s=lambda: now[0])
    assert await asyncio.gather(*(values.value("org", "A", "p") for _ in range(5))) == ["vvvvv"] * 5
    assert asked == ["A"]
    now[0] = 61.0
    await values.value("org", "A", "p")
    assert asked == ["A", "A"]
    asked.clear()
    for _ in range(2):
        with pytest.raises(SecretUnavailableError):
            await values.value("org", "DOWN", "p")
    assert await values.value("org", "DOWN", "p") == "vvvvv"
