"""Event waits of tools: prepare, arm, time out, each one POST to the tool's event-wait path."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, Literal
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from runtime.errors import (
    ExecuteFailedError,
    JsonValueError,
    ToolOutcomeUnknownError,
    ToolRejectedError,
    ToolUnavailableError,
)
from runtime.execution_api import failures, wire
from runtime.execution_api.tokens import usable_token
from runtime.execution_api.transport import Transport
from runtime.model import json_value
from runtime.model.failure import Failure, FailureClass
from runtime.model.waiting_tool import EventBoundary
from runtime.policy.limits import Limits
from runtime.policy.retrying import CONTROL_RETRIED_STATUSES, control_delay_ms
from runtime.ports import TokenSource

Phase = Literal["prepare", "arm", "timeout"]
_NOT_SENT = frozenset({FailureClass.TRANSPORT_BEFORE_DISPATCH, FailureClass.GATEWAY_502})
_DOUBTFUL = frozenset(
    {
        FailureClass.AMBIGUOUS,
        FailureClass.BODY_STALLED,
        FailureClass.BODY_CUT,
        FailureClass.BODY_INVALID,
        FailureClass.TRANSIENT,
    }
)


class _TimeoutPolicy(BaseModel):
    model_config = ConfigDict(extra="ignore", alias_generator=to_camel)

    finalize_on_timeout: bool = False


class _Boundary(BaseModel):
    model_config = ConfigDict(extra="ignore", alias_generator=to_camel)

    event_key: str = Field(min_length=1, max_length=500)
    timeout_ms: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    timeout_policy: _TimeoutPolicy = Field(default_factory=_TimeoutPolicy)


class ApiEventTools:
    """EventTools over the execution API's control side."""

    def __init__(
        self,
        transport: Transport,
        tokens: TokenSource,
        limits: Limits,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._transport = transport
        self._tokens = tokens
        self._limits = limits
        self._sleep = sleep

    async def prepare(self, tool: str, org_id: str, input: Any, context: dict[str, Any]) -> EventBoundary:
        body = {"phase": "prepare", "payload": input, "context": context}
        return _boundary(tool, await self._ask(tool, org_id, "prepare", body, repeats=True))

    async def arm(
        self,
        tool: str,
        org_id: str,
        input: Any,
        context: dict[str, Any],
        stated: dict[str, Any],
        *,
        repeats: bool,
    ) -> EventBoundary:
        body = {"phase": "arm", "payload": input, "context": context, "boundary": stated}
        said = await self._ask(tool, org_id, "arm", body, repeats=repeats)
        return _boundary(tool, {**stated, **said})

    async def time_out(
        self, tool: str, org_id: str, input: Any, context: dict[str, Any], stated: dict[str, Any]
    ) -> None:
        body = {"phase": "timeout", "payload": input, "context": context, "boundary": stated}
        await self._ask(tool, org_id, "timeout", body, repeats=True)

    async def _ask(
        self, tool: str, org_id: str, phase: Phase, body: dict[str, Any], *, repeats: bool
    ) -> dict[str, Any]:
        """The reply's object; a doubtful failure is tried again only if that is harmless."""
        attempt = 1
        while True:
            found = await self._try(tool, org_id, phase, body)
            if not isinstance(found, Failure):
                return found
            again = found.failure_class in _NOT_SENT or (
                repeats and (found.failure_class in _DOUBTFUL or found.status in CONTROL_RETRIED_STATUSES)
            )
            delay_ms = control_delay_ms(attempt, self._limits) if again else None
            if delay_ms is None:
                raise _error(tool, phase, failures.numbered(found, tool=tool, attempt=attempt))
            attempt += 1
            await self._sleep(delay_ms / 1000)

    async def _try(
        self, tool: str, org_id: str, phase: Phase, body: dict[str, Any]
    ) -> dict[str, Any] | Failure:
        what = f"event wait of {tool} ({phase})"
        try:
            token = await usable_token(self._tokens, org_id, what)
            reply = await self._transport.exchange(
                what,
                "POST",
                wire.event_wait_path(tool),
                headers={
                    wire.AUTHORIZATION: f"Bearer {token}",
                    "content-type": "application/json",
                    wire.REQUEST_ID: f"event-{uuid4().hex}",
                },
                body=json_value.dumps(body),
                timeout_ms=self._limits.control_timeout_ms,
                most_bytes=self._limits.control_body_bytes,
            )
        except ExecuteFailedError as error:
            return error.failure
        if not reply.is_success:
            return failures.refused_reply(what, reply, now=datetime.now(UTC), limits=self._limits)
        if reply.broken is not None:
            return reply.broken
        try:
            said = json_value.loads(reply.body) if reply.body else {}
        except JsonValueError as error:
            return failures.plain(what, FailureClass.BODY_INVALID, f"unreadable: {error}")
        return said if isinstance(said, dict) else {}


def _boundary(tool: str, said: dict[str, Any]) -> EventBoundary:
    try:
        parsed = _Boundary.model_validate(said)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ToolRejectedError(
            f"event wait of {tool}: its boundary is not what was agreed ({where}: {first['msg']})",
            tool=tool,
            code="bad_boundary",
        ) from None
    return EventBoundary(
        event_key=parsed.event_key,
        timeout_ms=parsed.timeout_ms,
        finalizes=parsed.timeout_policy.finalize_on_timeout,
        stated=said,
    )


def _error(tool: str, phase: Phase, failure: Failure) -> Exception:
    message = failure.describe()
    if phase == "arm" and failure.failure_class in _DOUBTFUL:
        return ToolOutcomeUnknownError(
            f"{message}; whether {tool} asked is unknown, it is not armed again",
            tool=tool,
            details=failure.details(),
        )
    refused = failure.status is not None and failure.status < 500 and failure.status != 429
    kind = ToolRejectedError if refused and failure.status not in (401, 403, 408) else ToolUnavailableError
    return kind(
        message,
        tool=tool,
        code=failure.code,
        retryable=kind is ToolUnavailableError,
        details=failure.details(),
    )
