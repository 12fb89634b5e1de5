"""The execution API's client: one send a call of `execute`; what follows a failure is the lane's decision."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import httpx

from runtime.errors import (
    ExecuteFailedError,
    ServiceUnreachableError,
    ToolRejectedError,
    ToolUnavailableError,
)
from runtime.execution_api import failures, parsing, wire
from runtime.execution_api.catalog import MetadataCache
from runtime.execution_api.exchange import (
    ExecuteReply,
    ExecuteRequest,
    request_body,
    request_headers,
    request_id_of,
)
from runtime.execution_api.transport import Transport, WireReply
from runtime.model.failure import Failure, FailureClass
from runtime.model.tool import ToolMetadata
from runtime.policy.limits import Limits
from runtime.policy.retrying import CONTROL_RETRIED_STATUSES, control_delay_ms
from runtime.ports import TokenSource

_TOKEN = re.compile(r"[\x21-\x7e]+")


class ExecutionApiClient:
    """Executes operations and looks up tools. Tokens go into the Authorization header and nowhere else."""

    def __init__(
        self,
        base_url: str,
        token_source: TokenSource,
        limits: Limits,
        http: httpx.AsyncClient | None = None,
        *,
        now_s: Callable[[], float] = time.monotonic,
        utc_now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._transport = Transport(base_url=base_url.rstrip("/"), limits=limits, given=http)
        self._tokens = token_source
        self._limits = limits
        self._utc_now = utc_now
        self._sleep = sleep
        self._metadata = MetadataCache(
            self._look_up, ttl_s=limits.metadata_ttl_s, tools=limits.metadata_tools, now_s=now_s
        )

    def __repr__(self) -> str:
        return f"ExecutionApiClient({self.origin})"

    @property
    def origin(self) -> str:
        """Scheme, host and port of the API; part of a bucket."""
        url = httpx.URL(self._transport.base_url)
        return f"{url.scheme}://{url.netloc.decode().rpartition('@')[2]}"

    async def execute(self, request: ExecuteRequest) -> ExecuteReply:
        """Send once. Raises ExecuteFailedError with the failure's class."""
        token = await self._token(request.org_id, request.operation)
        reply = await self._transport.exchange(
            request.operation,
            "POST",
            wire.execute_path(request.operation),
            headers=request_headers(request, token),
            body=request_body(request),
            timeout_ms=request.timeout_ms,
        )
        if reply.is_success:
            return self._accepted(request, reply)
        raise ExecuteFailedError(self._refused(request.operation, reply))

    async def tool_metadata(self, tool: str, org_id: str) -> ToolMetadata:
        """What the tool declares; kept for `metadata_ttl_s`, a refused look-up is never kept."""
        return await self._metadata.get(tool, org_id)

    async def metadata(self, tool: str, org_id: str) -> ToolMetadata:
        return await self.tool_metadata(tool, org_id)

    async def is_healthy(self) -> bool:
        """Whether the API answers its health path."""
        try:
            reply = await self._transport.exchange(
                "health",
                "GET",
                wire.HEALTH_PATH,
                headers={},
                body=None,
                timeout_ms=self._limits.connect_timeout_ms,
            )
        except ExecuteFailedError:
            return False
        return reply.is_success and reply.broken is None

    async def close(self) -> None:
        await self._transport.close()

    async def _token(self, org_id: str, operation: str) -> str:
        token = await self._tokens.token(org_id)
        if not _TOKEN.fullmatch(token):
            what = f"the token of organisation {org_id} is empty or holds characters that no header may carry"
            raise ExecuteFailedError(failures.plain(operation, FailureClass.AUTH, what))
        return token

    def _accepted(self, request: ExecuteRequest, reply: WireReply) -> ExecuteReply:
        if reply.broken is not None:
            raise ExecuteFailedError(reply.broken)
        request_id = reply.headers.get(wire.REQUEST_ID) or request_id_of(request)
        try:
            parsed, error = parsing.execute_reply(
                reply.body, request_id=request_id, max_depth=self._limits.value_depth
            )
        except parsing.UnreadableReplyError as unreadable:
            raise ExecuteFailedError(
                failures.plain(
                    request.operation, FailureClass.BODY_INVALID, f"unreadable reply: {unreadable}"
                )
            ) from None
        if error is not None:
            raise ExecuteFailedError(self._failed_inside(request.operation, reply, error))
        return parsed

    def _failed_inside(self, operation: str, reply: WireReply, error: object) -> Failure:
        said = failures.api_error_of({"error": error}, self._limits)
        what = f"answered that it failed: {said.message or said.code or 'no reason given'}"
        return failures.plain(operation, FailureClass.REJECTED, what, code=said.code, status=reply.status)

    def _refused(self, operation: str, reply: WireReply) -> Failure:
        """A refusal whose body can't be read is classed by its status where that alone is certain."""
        status = reply.status
        error = failures.api_error(reply.body, self._limits)
        if reply.broken is not None and status == 402:
            error = failures.ApiError(code=wire.BODY_UNREADABLE_402, message=reply.broken.message)
        elif reply.broken is not None and status != 429:
            return reply.broken
        return failures.refused(
            operation, status, reply.headers, error, now=self._utc_now(), limits=self._limits
        )

    async def _look_up(self, tool: str, org_id: str) -> ToolMetadata:
        attempt = 1
        while True:
            failure = await self._try_look_up(tool, org_id)
            if isinstance(failure, ToolMetadata):
                return failure
            delay_ms = control_delay_ms(attempt, self._limits) if _is_retried(failure) else None
            if delay_ms is None:
                raise _look_up_error(tool, failure, attempt)
            attempt += 1
            await self._sleep(delay_ms / 1000)

    async def _try_look_up(self, tool: str, org_id: str) -> ToolMetadata | Failure:
        operation = f"metadata of tool {tool}"
        try:
            token = await self._token(org_id, operation)
            reply = await self._transport.exchange(
                operation,
                "GET",
                wire.metadata_path(tool),
                headers={wire.AUTHORIZATION: f"Bearer {token}"},
                body=None,
                timeout_ms=self._limits.control_timeout_ms,
            )
        except ExecuteFailedError as error:
            return error.failure
        if not reply.is_success:
            return self._refused(operation, reply)
        if reply.broken is not None:
            return reply.broken
        try:
            return parsing.tool_metadata(tool, reply.body)
        except parsing.UnreadableReplyError as unreadable:
            return failures.plain(
                operation, FailureClass.REJECTED, f"unreadable: {unreadable}", code="bad_metadata"
            )


_UNREACHABLE = frozenset(
    {
        FailureClass.TRANSPORT_BEFORE_DISPATCH,
        FailureClass.AMBIGUOUS,
        FailureClass.BODY_STALLED,
        FailureClass.BODY_CUT,
    }
)


def _is_retried(failure: Failure) -> bool:
    return failure.failure_class in _UNREACHABLE or failure.status in CONTROL_RETRIED_STATUSES


def _look_up_error(tool: str, failure: Failure, attempts: int) -> Exception:
    """What a caller of a tool learns when it can't be looked up; nothing was called."""
    message = f"tool {tool} can't be looked up after {attempts} attempt(s): {failure.message}"
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
