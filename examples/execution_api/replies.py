"""How answers become HTTP replies, whole or broken."""

import asyncio
import random
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from examples.execution_api.execution import ApiState, Done, RefusedError, Work, label
from examples.execution_api.misbehaviour import Misbehaviour
from runtime.execution_api import wire
from runtime.model import json_value

_STALL_S = 120.0
_SHUFFLE = random.Random(20)  # noqa: S311 - an order, not a secret


def json_reply(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(json_value.dumps(value), status, headers, "application/json")


def success(state: ApiState, work: Work, done: Done, request: Request) -> Response:
    """The reply of a request that was worked on, in the contract that it asked for."""
    if work.keys is None and "error" in done.answers[0]:
        error = done.answers[0]["error"]
        return refusal(RefusedError(422, error["code"], error["message"]), request)
    result = _result(work.misbehaviour, work, done)
    if request.headers.get(wire.RESPONSE_CONTRACT) == wire.LEGACY:
        body = {"status": "completed", "result": {"data": result}, "billing": {"credits": done.credits}}
    else:
        body = {
            "status": "completed",
            "toolResponse": {
                "rawV2": {"data": result},
                "view": "data",
                "meta": {"provider": work.tool.provider},
            },
            "billing": {"credits": done.credits},
        }
    misbehaviour = work.misbehaviour
    text = misbehaviour.reply_text if misbehaviour.applies(work.operation) else None
    content = _spelled(json_value.dumps(body), misbehaviour, work) if text is None else text.encode()
    headers = _own_headers(request) | fence_headers(misbehaviour, is_fenced=work.tool.requires_fence)
    broken = misbehaviour.take_broken(work.operation)
    if broken is None:
        return Response(content, 200, headers, "application/json")
    kind, after_bytes = broken
    return BrokenReply(content, headers, after_bytes, state.released if kind == "stall" else None)


def fence_headers(misbehaviour: Misbehaviour, *, is_fenced: bool = True) -> dict[str, str]:
    """The promise that a repeated key of a fenced request has no second effect."""
    return {wire.INVOCATION_FENCE: wire.FENCE_VERSION} if is_fenced and misbehaviour.attest_fence else {}


def refusal(refused: RefusedError, request: Request) -> Response:
    """The reply of a request that was refused as a whole."""
    forced = refused.forced
    headers = _own_headers(request) if forced is None or forced.marked else {}
    headers[wire.ERROR_CODE] = refused.code
    error: dict[str, Any] = {"code": refused.code, "message": str(refused)}
    if forced is None:
        return json_reply({"error": error}, refused.status, headers)
    for name, value in (
        (wire.RETRY_AFTER, forced.retry_after),
        (wire.DATE, forced.date),
        ("location", forced.location),
    ):
        if value is not None:
            headers[name] = value
    headers |= {name.lower(): value for name, value in forced.headers.items()}
    if forced.origin is not None:
        error["failure_origin"] = forced.origin
    if forced.retry_at is not None:
        error["retry_at"] = forced.retry_at
    if forced.body is not None:
        return Response(forced.body, refused.status, headers)
    return json_reply({"error": error}, refused.status, headers)


class BrokenReply(Response):
    """Announces a whole body, sends its beginning, then stalls (until released) and ends the connection."""

    def __init__(
        self, content: bytes, headers: dict[str, str], after_bytes: int, stalled_until: asyncio.Event | None
    ) -> None:
        super().__init__(content, 200, headers, "application/json")
        self._after_bytes = min(after_bytes, len(content) - 1)
        self._stalled_until = stalled_until

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        start = bytes(self.body)[: self._after_bytes]
        await send({"type": "http.response.body", "body": start, "more_body": True})
        if self._stalled_until is not None:
            await _first_of(self._stalled_until, receive)


async def _first_of(event: asyncio.Event, receive: Receive) -> None:
    waits = {asyncio.ensure_future(event.wait()), asyncio.ensure_future(receive())}
    try:
        await asyncio.wait(waits, timeout=_STALL_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


def _result(misbehaviour: Misbehaviour, work: Work, done: Done) -> Any:
    answers = [
        {**answer, "result": _placeholder(named)} if _is_spelled(misbehaviour, work, named) else answer
        for named, answer in zip(work.labels, done.answers, strict=True)
    ]
    if work.keys is None:
        return answers[0]["result"]
    items = [{"key": key, **answer} for key, answer in zip(work.keys, answers, strict=True)]
    if misbehaviour.applies(work.operation):
        items = _disturbed(misbehaviour, work, items)
    return {"items": items}


def _disturbed(misbehaviour: Misbehaviour, work: Work, items: list[Any]) -> list[Any]:
    labelled = [(label(item), reply) for item, reply in zip(work.inputs, items, strict=True)]
    kept = [reply for name, reply in labelled if name != misbehaviour.drop_item or name is None]
    kept += [reply for name, reply in labelled if name == misbehaviour.duplicate_item and name is not None]
    if misbehaviour.stranger:
        kept.append({"key": "stranger", "result": {"value": "v:stranger"}})
    if misbehaviour.shuffle:
        _SHUFFLE.shuffle(kept)
    return kept


def _is_spelled(misbehaviour: Misbehaviour, work: Work, named: Any) -> bool:
    return isinstance(named, str) and named in misbehaviour.item_text and misbehaviour.applies(work.operation)


def _placeholder(named: str) -> str:
    return f"verbatim:{named}"


def _spelled(content: bytes, misbehaviour: Misbehaviour, work: Work) -> bytes:
    """The body with each placeholder replaced by text that need not be JSON at all."""
    for named in {named for named in work.labels if _is_spelled(misbehaviour, work, named)}:
        content = content.replace(
            json_value.dumps(_placeholder(named)), misbehaviour.item_text[named].encode()
        )
    return content


def _own_headers(request: Request) -> dict[str, str]:
    return {wire.REQUEST_ID: request.headers.get(wire.REQUEST_ID, "") or "unnamed"}
