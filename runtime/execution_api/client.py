"""The execution API's client: one send a call of `execute`; what follows a failure is the lane's decision."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime

import httpx

from runtime.errors import ExecuteFailedError
from runtime.execution_api import failures, parsing, wire
from runtime.execution_api.control_plane import ControlPlane
from runtime.execution_api.echoes import without_token
from runtime.execution_api.event_waits import ApiEventTools
from runtime.execution_api.exchange import (
    ExecuteReply,
    ExecuteRequest,
    request_body,
    request_headers,
    request_id_of,
    request_path,
)
from runtime.execution_api.secrets import ApiSecrets
from runtime.execution_api.tokens import usable_token
from runtime.execution_api.transport import Transport, WireReply
from runtime.model.failure import Failure, FailureClass
from runtime.model.tool import ToolMetadata
from runtime.policy.limits import Limits
from runtime.ports import TokenSource


class ExecutionApiClient:
    """Executes operations and looks up tools. Tokens go into the Authorization header and nowhere else.

    `control_url`: origin of look-ups where it isn't that of executions. Each has connections of its own.
    """

    def __init__(
        self,
        base_url: str,
        token_source: TokenSource,
        limits: Limits,
        http: httpx.AsyncClient | None = None,
        *,
        control_url: str = "",
        test_fault: str = "",
        now_s: Callable[[], float] = time.monotonic,
        utc_now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._execution = Transport(
            base_url=base_url.rstrip("/"), limits=limits, in_flight=limits.tool_calls_in_flight, given=http
        )
        self._control_transport = Transport(
            base_url=(control_url or base_url).rstrip("/"),
            limits=limits,
            in_flight=limits.control_calls_in_flight,
            given=http,
        )
        self.secrets = ApiSecrets(self._control_transport, token_source, limits, sleep=sleep)
        self.event_tools = ApiEventTools(self._control_transport, token_source, limits, sleep=sleep)
        self._tokens = token_source
        self._limits = limits
        self._test_fault = test_fault
        self._utc_now = utc_now
        self._control = ControlPlane(
            self._control_transport, token_source, limits, now_s=now_s, utc_now=utc_now, sleep=sleep
        )

    def __repr__(self) -> str:
        return f"ExecutionApiClient({self.origin})"

    @property
    def origin(self) -> str:
        """Scheme, host and port of the execution API; part of a bucket."""
        url = httpx.URL(self._execution.base_url)
        return f"{url.scheme}://{url.netloc.decode().rpartition('@')[2]}"

    async def execute(self, request: ExecuteRequest) -> ExecuteReply:
        """Send once. Raises ExecuteFailedError with the failure's class."""
        try:
            return await self._execute(request)
        except ExecuteFailedError as error:
            named = replace(error.failure, request_id=error.failure.request_id or request_id_of(request))
            raise ExecuteFailedError(named) from error.__cause__

    async def tool_metadata(self, tool: str, org_id: str) -> ToolMetadata:
        """What the tool declares; kept for `metadata_ttl_s`, a refused look-up is never kept."""
        return await self._control.metadata(tool, org_id)

    async def metadata(self, tool: str, org_id: str) -> ToolMetadata:
        return await self._control.metadata(tool, org_id)

    async def auth_scope(self, tool: str, org_id: str, *, refresh: bool = False) -> str | None:
        """Digest of the credentials behind the tool, None where it has none; part of a call's key."""
        return await self._control.auth_scope(tool, org_id, refresh=refresh)

    async def attests_fence(self) -> bool:
        """Whether a fenced request may be repeated under its key. Raises ServiceUnreachableError."""
        return await self._control.attests_fence(self._execution)

    async def is_healthy(self) -> bool:
        """Whether the API answers its health path."""
        try:
            reply = await self._execution.exchange(
                "health",
                "GET",
                wire.HEALTH_PATH,
                headers={},
                body=None,
                timeout_ms=self._limits.connect_timeout_ms,
                most_bytes=self._limits.control_body_bytes,
            )
        except ExecuteFailedError:
            return False
        return reply.is_success and reply.broken is None

    async def close(self) -> None:
        await self._execution.close()
        await self._control_transport.close()

    async def _execute(self, request: ExecuteRequest) -> ExecuteReply:
        token = await usable_token(self._tokens, request.org_id, request.operation)
        reply = await self._execution.exchange(
            request.operation,
            "POST",
            request_path(request),
            headers=request_headers(request, token, test_fault=self._test_fault),
            body=request_body(request),
            timeout_ms=request.timeout_ms,
        )
        reply = without_token(reply, token)
        attested = failures.attests_fence(reply.headers)
        answer = self._accepted(request, reply) if reply.is_success else self._refused(request, reply)
        if isinstance(answer, Failure):
            raise ExecuteFailedError(replace(answer, fence_attested=attested))
        return replace(answer, fence_attested=attested)

    def _accepted(self, request: ExecuteRequest, reply: WireReply) -> ExecuteReply | Failure:
        if reply.broken is not None:
            return reply.broken
        request_id = reply.headers.get(wire.REQUEST_ID) or request_id_of(request)
        try:
            parsed, error = parsing.execute_reply(
                reply.body, request_id=request_id, max_depth=self._limits.value_depth
            )
        except parsing.UnreadableReplyError as unreadable:
            what = f"unreadable reply: {unreadable}"
            return failures.plain(request.operation, FailureClass.BODY_INVALID, what, status=reply.status)
        if error is not None:
            return failures.failed_inside(
                request.operation, reply, error, now=self._utc_now(), limits=self._limits
            )
        return replace(parsed, replied_at=failures.replied_at(reply.headers, self._utc_now()))

    def _refused(self, request: ExecuteRequest, reply: WireReply) -> Failure:
        return failures.refused_reply(request.operation, reply, now=self._utc_now(), limits=self._limits)
