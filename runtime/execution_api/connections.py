"""Connections to one origin, last used first: taking one costs the same however many there are.

httpx's own pool walks all its connections for every request, which costs more than the request at 64.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from types import TracebackType

import httpx


@dataclass(frozen=True, slots=True, kw_only=True)
class _Idle:
    connection: httpx.AsyncHTTPTransport
    since_s: float


class ConnectionStack(httpx.AsyncBaseTransport):
    """At most `size` connections; one that was idle for `keepalive_s` is closed."""

    def __init__(self, *, size: int, keepalive_s: float) -> None:
        self._slots = asyncio.Semaphore(size)
        self._keepalive_s = keepalive_s
        self._idle: deque[_Idle] = deque()
        self._tls = httpx.create_ssl_context(trust_env=False)
        self._one = httpx.Limits(max_connections=1, max_keepalive_connections=1, keepalive_expiry=keepalive_s)
        self._loop = asyncio.get_running_loop()
        self._trim_at: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._is_closed = False

    @property
    def idle_count(self) -> int:
        return len(self._idle)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await self._take_slot(request)
        connection = self._idle.pop().connection if self._idle else self._new()
        try:
            response = await connection.handle_async_request(request)
        except BaseException:
            await self._give_back(connection)
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _ReturningStream(response.stream, lambda: self._give_back(connection))
        return response

    async def aclose(self) -> None:
        self._is_closed = True
        if self._trim_at is not None:
            self._trim_at.cancel()
        idle = [entry.connection for entry in self._idle]
        self._idle.clear()
        for connection in idle:
            await connection.aclose()
        await asyncio.gather(*self._closing)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None = None,
        exc_value: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        await self.aclose()

    async def _take_slot(self, request: httpx.Request) -> None:
        if not self._slots.locked():
            await self._slots.acquire()
            return
        wait_s = request.extensions.get("timeout", {}).get("pool")
        try:
            async with asyncio.timeout(wait_s):
                await self._slots.acquire()
        except TimeoutError:
            raise httpx.PoolTimeout(f"no free connection within {wait_s} s", request=request) from None

    def _new(self) -> httpx.AsyncHTTPTransport:
        return httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False, limits=self._one)

    async def _give_back(self, connection: httpx.AsyncHTTPTransport) -> None:
        self._slots.release()
        if self._is_closed:
            await connection.aclose()
            return
        self._idle.append(_Idle(connection=connection, since_s=self._loop.time()))
        if self._trim_at is None:
            self._trim_at = self._loop.call_later(self._keepalive_s, self._trim)

    def _trim(self) -> None:
        """Close what was idle long enough; look again while anything is idle."""
        self._trim_at = None
        oldest_s = self._loop.time() - self._keepalive_s
        while self._idle and self._idle[0].since_s <= oldest_s:
            task = self._loop.create_task(self._idle.popleft().connection.aclose())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        if self._idle:
            due_s = self._idle[0].since_s + self._keepalive_s - self._loop.time()
            self._trim_at = self._loop.call_later(max(0.0, due_s), self._trim)


class _ReturningStream(httpx.AsyncByteStream):
    """A body whose end gives its connection back, once."""

    def __init__(self, inner: httpx.AsyncByteStream, give_back: Callable[[], Awaitable[None]]) -> None:
        self._inner = inner
        self._give_back: Callable[[], Awaitable[None]] | None = give_back

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._inner:
            yield part

    async def aclose(self) -> None:
        give_back, self._give_back = self._give_back, None
        if give_back is None:
            return
        try:
            await self._inner.aclose()
        finally:
            await give_back()
