"""One HTTP exchange with its deadlines: sent or not, whole, stalled, cut or too large."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import httpx

from runtime.errors import ExecuteFailedError
from runtime.execution_api import failures
from runtime.execution_api.connections import ConnectionStack
from runtime.model.failure import Failure, FailureClass
from runtime.policy.limits import Limits

COMMON = {"accept": "*/*", "accept-encoding": "gzip, deflate", "user-agent": "playlane"}
URLS_KEPT = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class WireReply:
    """A reply as it came; `broken` says that its body is not whole."""

    status: int
    headers: httpx.Headers
    body: bytes
    broken: Failure | None = None

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300


@dataclass(slots=True, kw_only=True)
class _Progress:
    """How far an exchange came, for telling what its deadline interrupted."""

    most_bytes: int
    connecting: bool = False
    reply: httpx.Response | None = None

    async def trace(self, event: str, info: dict[str, Any]) -> None:
        if event.startswith("connection."):
            self.connecting = event.endswith(".started")


@dataclass(slots=True, kw_only=True)
class Transport:
    """A pool of connections to one origin, made lazily inside the running loop."""

    base_url: str
    limits: Limits
    in_flight: int  # requests at once to this origin
    given: httpx.AsyncClient | None = None
    _own: ConnectionStack | None = field(default=None, repr=False)
    _urls: dict[str, httpx.URL] = field(default_factory=dict, repr=False)
    _loop: asyncio.AbstractEventLoop | None = field(default=None, repr=False)

    async def exchange(
        self,
        operation: str,
        method: str,
        path: str,
        *,
        headers: dict[str, str],
        body: bytes | None,
        timeout_ms: float,
        most_bytes: int | None = None,
    ) -> WireReply:
        """The reply, whatever its status; ExecuteFailedError if not even a status line came.

        A good body above `most_bytes` (`response_bytes` if not given) is refused.
        """
        if self.given is None:
            self._pool()  # made before the deadline starts
        progress = _Progress(most_bytes=most_bytes or self.limits.response_bytes)
        extensions = {"trace": progress.trace, "timeout": self._waits}
        request = httpx.Request(
            method, self._url(path), headers={**COMMON, **headers}, content=body, extensions=extensions
        )
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._send(operation, request, progress)
        except TimeoutError:
            failure = _past_deadline(operation, progress, timeout_ms)
            if progress.reply is None:
                raise ExecuteFailedError(failure) from None
            return WireReply(
                status=progress.reply.status_code, headers=progress.reply.headers, body=b"", broken=failure
            )

    async def close(self) -> None:
        """Close what this transport made itself."""
        own, self._own = self._own, None
        if own is not None:
            await own.aclose()

    async def _send(self, operation: str, request: httpx.Request, progress: _Progress) -> WireReply:
        try:
            response = await self._response(request)
        except (httpx.TransportError, httpx.InvalidURL, OSError) as error:
            kind = failures.transport_class(error)
            raise ExecuteFailedError(failures.plain(operation, kind, _describe(error))) from error
        progress.reply = response
        body, broken = b"", None
        try:
            body = await self._read(response, progress.most_bytes)
        except _BrokenBodyError as error:
            status = response.status_code
            broken = failures.plain(operation, error.kind, f"HTTP {status}, then {error}", status=status)
        finally:
            await response.aclose()
        return WireReply(status=response.status_code, headers=response.headers, body=body, broken=broken)

    async def _read(self, response: httpx.Response, most_bytes: int) -> bytes:
        stall_s = self.limits.body_stall_ms / 1000
        stall = asyncio.timeout(stall_s)
        try:
            async with stall:
                return await self._collect(response, stall, stall_s, most_bytes)
        except TimeoutError:
            if not stall.expired():
                raise
            raise _BrokenBodyError(
                FailureClass.BODY_STALLED, f"no byte of the body for {stall_s:g} s"
            ) from None
        except httpx.DecodingError as error:
            raise _BrokenBodyError(FailureClass.BODY_INVALID, _describe(error)) from error
        except (httpx.TransportError, OSError) as error:
            raise _BrokenBodyError(FailureClass.BODY_CUT, _describe(error)) from error

    async def _collect(
        self, response: httpx.Response, stall: asyncio.Timeout, stall_s: float, most_bytes: int
    ) -> bytes:
        most = most_bytes if response.is_success else self.limits.error_body_bytes
        now = asyncio.get_running_loop().time
        parts = bytearray()
        async for part in response.aiter_bytes():
            parts += part
            if len(parts) > most and response.is_success:
                raise _BrokenBodyError(FailureClass.BODY_INVALID, f"a body above {most} bytes")
            if len(parts) > most:
                break
            stall.reschedule(now() + stall_s)
        return bytes(parts)

    async def _response(self, request: httpx.Request) -> httpx.Response:
        """No redirect, cookie, proxy or credential of its own: a client around the pool would only cost time."""
        if self.given is not None:
            return await self.given.send(request, stream=True, follow_redirects=False, auth=None)
        response = await self._pool().handle_async_request(request)
        response.request = request
        return response

    def _pool(self) -> ConnectionStack:
        loop = asyncio.get_running_loop()
        if self._own is None or self._loop is not loop:
            # A pool belongs to the loop (and so to the process) that made it.
            self._own = ConnectionStack(size=self.in_flight, keepalive_s=self.limits.keepalive_s)
            self._loop = loop
        return self._own

    def _url(self, path: str) -> httpx.URL:
        """Parsed once for each of the latest paths."""
        url = self._urls.get(path)
        if url is None:
            if len(self._urls) >= URLS_KEPT:
                self._urls.clear()
            url = self._urls[path] = httpx.URL(self.base_url + path)
        return url

    @property
    def _waits(self) -> dict[str, float | None]:
        connect_s = self.limits.connect_timeout_ms / 1000
        return {"connect": connect_s, "pool": connect_s, "read": None, "write": None}


class _BrokenBodyError(Exception):
    def __init__(self, kind: FailureClass, what: str) -> None:
        super().__init__(what)
        self.kind = kind


def _past_deadline(operation: str, progress: _Progress, timeout_ms: float) -> Failure:
    what = f"no whole answer within {timeout_ms / 1000:g} s"
    if progress.reply is not None:
        status = progress.reply.status_code
        return failures.plain(
            operation, FailureClass.BODY_STALLED, what, code="deadline_exceeded", status=status
        )
    kind = FailureClass.TRANSPORT_BEFORE_DISPATCH if progress.connecting else FailureClass.AMBIGUOUS
    return failures.plain(operation, kind, what, code="deadline_exceeded")


def _describe(error: Exception) -> str:
    """The kind and text of a transport error; none of these texts holds a request header."""
    return f"{type(error).__name__}: {str(error)[:200]}".rstrip(": ")
