"""What is asked of the API about tools: small replies, read inside the deadline, tried again where that may help."""

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TypeVar

from runtime.errors import (
    ExecuteFailedError,
    ServiceUnreachableError,
    ToolRejectedError,
    ToolUnavailableError,
)
from runtime.execution_api import failures, parsing, wire
from runtime.execution_api.catalog import LookUpCache
from runtime.execution_api.tokens import usable_token
from runtime.execution_api.transport import Transport
from runtime.model.failure import Failure, FailureClass
from runtime.model.tool import ToolMetadata
from runtime.policy.limits import Limits
from runtime.policy.retrying import CONTROL_RETRIED_STATUSES, control_delay_ms
from runtime.ports import TokenSource

T = TypeVar("T")

_UNREACHABLE = frozenset(
    {
        FailureClass.TRANSPORT_BEFORE_DISPATCH,
        FailureClass.AMBIGUOUS,
        FailureClass.BODY_STALLED,
        FailureClass.BODY_CUT,
    }
)


class ControlPlane:
    """Look-ups of tools, cached; a refused one is never kept. Redirects are refused."""

    def __init__(
        self,
        transport: Transport,
        tokens: TokenSource,
        limits: Limits,
        *,
        now_s: Callable[[], float],
        utc_now: Callable[[], datetime],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._transport = transport
        self._tokens = tokens
        self._limits = limits
        self._utc_now = utc_now
        self._sleep = sleep
        self._metadata: LookUpCache[ToolMetadata] = LookUpCache(
            self._look_up_metadata, ttl_s=limits.metadata_ttl_s, tools=limits.metadata_tools, now_s=now_s
        )
        self._auth_scopes: LookUpCache[str | None] = LookUpCache(
            self._look_up_auth_scope, ttl_s=limits.auth_scope_ttl_s, tools=limits.metadata_tools, now_s=now_s
        )

    async def metadata(self, tool: str, org_id: str) -> ToolMetadata:
        """What the tool declares, kept for `metadata_ttl_s`."""
        return await self._metadata.get(tool, org_id)

    async def auth_scope(self, tool: str, org_id: str, *, refresh: bool = False) -> str | None:
        """The digest of the credentials that calls of the tool are made with, kept for `auth_scope_ttl_s`."""
        return await self._auth_scopes.get(tool, org_id, refresh=refresh)

    async def attests_fence(self, transport: Transport) -> bool:
        """Whether the API behind `transport` promises that a repeated key has no second effect.

        Asked each time; raises ServiceUnreachableError if it doesn't answer.
        """
        what = "the invocation fence of the execution API"
        attempt = 1
        while True:
            failure = None
            try:
                reply = await transport.exchange(
                    what,
                    "GET",
                    wire.HEALTH_PATH,
                    headers={},
                    body=None,
                    timeout_ms=self._limits.control_timeout_ms,
                    most_bytes=self._limits.control_body_bytes,
                )
            except ExecuteFailedError as error:
                failure = error.failure
            else:
                if reply.status not in CONTROL_RETRIED_STATUSES:
                    return reply.is_success and failures.attests_fence(reply.headers)
                failure = failures.refused_reply(what, reply, now=self._utc_now(), limits=self._limits)
            delay_ms = control_delay_ms(attempt, self._limits)
            if delay_ms is None:
                raise ServiceUnreachableError(f"{what} can't be looked up: {failure.message}; asked again")
            attempt += 1
            await self._sleep(delay_ms / 1000)

    async def _look_up_metadata(self, tool: str, org_id: str) -> ToolMetadata:
        path = wire.metadata_path(tool)
        found = await self._look_up(
            f"tool {tool}", tool, org_id, path, lambda body: parsing.tool_metadata(tool, body)
        )
        if isinstance(found, Failure):
            raise _look_up_error(f"tool {tool}", tool, found)
        return found

    async def _look_up_auth_scope(self, tool: str, org_id: str) -> str | None:
        what = f"the auth scope of tool {tool}"
        found = await self._look_up(what, tool, org_id, wire.auth_scope_path(tool), parsing.auth_scope)
        if isinstance(found, Failure):
            if found.status == 404 and found.code == wire.NO_AUTH_SCOPE:
                return None
            raise _look_up_error(what, tool, found)
        return found

    async def _look_up(
        self, what: str, tool: str, org_id: str, path: str, parse: Callable[[bytes], T]
    ) -> T | Failure:
        """What was found, or the failure of the last attempt."""
        attempt = 1
        while True:
            found = await self._try_look_up(what, org_id, path, parse)
            if not isinstance(found, Failure):
                return found
            delay_ms = control_delay_ms(attempt, self._limits) if _is_retried(found) else None
            if delay_ms is None:
                return failures.numbered(found, tool=tool, attempt=attempt)
            attempt += 1
            await self._sleep(delay_ms / 1000)

    async def _try_look_up(
        self, what: str, org_id: str, path: str, parse: Callable[[bytes], T]
    ) -> T | Failure:
        operation = f"look-up of {what}"
        try:
            token = await usable_token(self._tokens, org_id, operation)
            reply = await self._transport.exchange(
                operation,
                "GET",
                path,
                headers={wire.AUTHORIZATION: f"Bearer {token}"},
                body=None,
                timeout_ms=self._limits.control_timeout_ms,
                most_bytes=self._limits.control_body_bytes,
            )
        except ExecuteFailedError as error:
            return error.failure
        if not reply.is_success:
            return failures.refused_reply(operation, reply, now=self._utc_now(), limits=self._limits)
        if reply.broken is not None:
            return reply.broken
        try:
            return parse(reply.body)
        except parsing.UnreadableReplyError as unreadable:
            what = f"unreadable: {unreadable}"
            return failures.plain(operation, FailureClass.REJECTED, what, code="bad_metadata")


def _is_retried(failure: Failure) -> bool:
    return failure.failure_class in _UNREACHABLE or failure.status in CONTROL_RETRIED_STATUSES


def _look_up_error(what: str, tool: str, failure: Failure) -> Exception:
    """What a caller of a tool learns when it can't be looked up; nothing was called."""
    message = f"{what} can't be looked up after {failure.attempt} attempt(s): {failure.message}"
    if _is_retried(failure) or (failure.status or 0) >= 500:
        return ServiceUnreachableError(message)
    kind = ToolUnavailableError if failure.failure_class is FailureClass.AUTH else ToolRejectedError
    return kind(
        message,
        tool=tool,
        code=failure.code,
        retryable=kind is ToolUnavailableError,
        details=failure.details(),
    )
