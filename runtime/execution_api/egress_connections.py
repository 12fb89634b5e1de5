"""Connections to the public network: the address that was checked is the address that is connected to."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import httpcore
import httpx

from runtime.errors import EgressRefusedError
from runtime.policy.egress import AllowedHost, address_refusal, host_refusal, is_allowed
from runtime.policy.limits import DEFAULT_LIMITS, Limits

# Threads of their own: those of the loop may all be busy with what plays call.
_LOOKUPS = ThreadPoolExecutor(DEFAULT_LIMITS.lookup_threads, "playlane-lookup")
Resolve = Callable[[str, int], Awaitable[Sequence[str]]]


async def resolve(host: str, port: int) -> Sequence[str]:
    """Every address of a host, as the system knows it."""
    look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_LOOKUPS, look_up)
    return tuple(dict.fromkeys(str(address[0]) for *_, address in found))


class CheckedNetwork(httpcore.AsyncNetworkBackend):
    """Looks a host up once, refuses it if any of its addresses isn't public, and connects to one of those."""

    def __init__(self, allowed: Sequence[AllowedHost], limits: Limits, resolve: Resolve = resolve) -> None:
        self._allowed = allowed
        self._limits = limits
        self._resolve = resolve
        self._network: Any = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        addresses = await self._addresses(host, port)
        failed: Exception | None = None
        for address in addresses[: self._limits.fetch_addresses]:
            try:
                return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
        raise failed or httpcore.ConnectError(f"{host} has no address")

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.AsyncNetworkStream:
        raise EgressRefusedError("a fetch never connects to a local socket; not sent, not tried again")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _addresses(self, host: str, port: int) -> list[str]:
        is_named = is_allowed(host, port, self._allowed)
        if not is_named:
            _refuse(host, host_refusal(host))
        try:
            found = await self._resolve(host, port)
        except OSError as error:
            raise httpcore.ConnectError(f"{host} can't be looked up: {error}") from error
        addresses = [address.partition("%")[0] for address in found]
        if not is_named:
            for address in addresses:
                _refuse(host, address_refusal(address))
        return addresses


def _refuse(host: str, why: str | None) -> None:
    if why is not None:
        raise EgressRefusedError(
            f"{host[:200]} is not fetched: {why}. Nothing was sent, and it is not tried again. An operator may name "
            "hosts that fetches may reach all the same: PLAYLANE_EGRESS_ALLOW"
        )


class CheckedTransport(httpx.AsyncBaseTransport):
    """httpx over a pool of one origin whose connections are made by a CheckedNetwork."""

    def __init__(self, network: CheckedNetwork, tls: Any, limits: Limits) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=tls,
            max_connections=limits.fetch_connections,
            max_keepalive_connections=limits.fetch_connections,
            keepalive_expiry=limits.keepalive_s,
            network_backend=network,
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.AsyncByteStream)
        reply = await self._pool.handle_async_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(
                    scheme=request.url.raw_scheme,
                    host=request.url.raw_host,
                    port=request.url.port,
                    target=request.url.raw_path,
                ),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        return httpx.Response(
            status_code=reply.status,
            headers=reply.headers,
            stream=_Body(reply),
            extensions=reply.extensions,
        )

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Body(httpx.AsyncByteStream):
    def __init__(self, reply: httpcore.Response) -> None:
        self._reply = reply

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._reply.aiter_stream():
            yield part

    async def aclose(self) -> None:
        await self._reply.aclose()
