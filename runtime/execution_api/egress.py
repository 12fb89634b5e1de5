"""Fetches from the public network: one attempt with its deadlines, every redirect checked anew."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from runtime.errors import EgressRefusedError, FetchFailedError, FetchTimeoutError
from runtime.execution_api.egress_connections import CheckedNetwork, CheckedTransport, Resolve, resolve
from runtime.execution_api.egress_hops import (
    NOT_SENT,
    TRANSPORT_ERRORS,
    Hop,
    failed,
    inflating,
    next_hop,
    parsed_url,
    port_of,
    refuse_cut,
    reply_of,
    shown,
)
from runtime.model.fetch import EgressReply, EgressRequest
from runtime.policy.egress import AllowedHost, is_allowed, url_refusal
from runtime.policy.fetching import is_redirect
from runtime.policy.limits import Limits

_PART_BYTES = 1024 * 1024


@dataclass(slots=True, kw_only=True)
class _Origin:
    """The connections of one origin; closed when nobody used them for a while."""

    client: httpx.AsyncClient
    in_use: int = 0
    close_at: asyncio.TimerHandle | None = None


class PublicEgress:
    """Belongs to one loop. At most `fetch_connections` requests at once; idle connections end by themselves."""

    def __init__(
        self, allowed: Sequence[AllowedHost], limits: Limits, *, resolve: Resolve = resolve, tls: Any = None
    ) -> None:
        self._allowed = tuple(allowed)
        self._limits = limits
        self._network = CheckedNetwork(self._allowed, limits, resolve)
        self._tls = tls
        self._origins: dict[str, _Origin] = {}
        self._slots = asyncio.Semaphore(limits.fetch_connections)
        self._closing: set[asyncio.Task[None]] = set()

    def is_allowed(self, url: str) -> bool:
        """Whether an operator named this URL's host."""
        parsed = parsed_url(url)
        return is_allowed(parsed.host, port_of(parsed), self._allowed)

    async def send(self, request: EgressRequest, *, total_ms: float) -> EgressReply:
        """One attempt. Raises EgressRefusedError, FetchTimeoutError or FetchFailedError."""
        try:
            async with asyncio.timeout(total_ms / 1000):
                async with self._slots:
                    return await self._follow(request)
        except TimeoutError:
            raise FetchTimeoutError(f"no whole answer within {total_ms / 1000:g} s altogether") from None

    @asynccontextmanager
    async def stream(self, url: str) -> AsyncIterator[AsyncIterator[bytes]]:
        """The decoded body of a GET's good answer, part by part; who reads it bounds its size and time.

        Raises EgressRefusedError, FetchTimeoutError (no headers, or a part that doesn't come) or FetchFailedError.
        """
        request = EgressRequest(method="GET", url=url, headers={})
        hop = Hop(method="GET", url=parsed_url(url), headers={}, secret_headers={}, body=b"")
        async with self._slots:
            for _ in range(self._limits.fetch_redirects + 1):
                self._check(hop.url)
                async with self._client(hop.url) as client:
                    response = await self._head(client, hop)
                    try:
                        location = response.headers.get("location")
                        if location is None or not is_redirect(response.status_code):
                            yield self._parts(hop, response)
                            return
                        hop = next_hop(hop, response.status_code, location, request)
                    finally:
                        await response.aclose()
        raise FetchFailedError(f"it was redirected more than {self._limits.fetch_redirects} times")

    async def _parts(self, hop: Hop, response: httpx.Response) -> AsyncIterator[bytes]:
        if response.status_code != 200:
            raise FetchFailedError(f"{shown(hop.url)} answered HTTP {response.status_code}")
        inflate = inflating(response.headers.get("content-encoding", ""), hop)
        raw, stall_s = response.aiter_raw(), self._limits.fetch_body_ms / 1000
        begun = False
        while True:
            try:
                async with asyncio.timeout(stall_s):
                    part = await anext(raw, None)
                if part is None:
                    refuse_cut(inflate, hop, begun=begun)
                    return
                begun = True
                while part:
                    yield part if inflate is None else inflate.take(part, _PART_BYTES)
                    part = b"" if inflate is None else inflate.left
            except TimeoutError:
                raise FetchTimeoutError(f"{shown(hop.url)} sent nothing for {stall_s:g} s") from None
            except (*TRANSPORT_ERRORS, zlib.error) as error:
                raise failed(hop.url, error) from error

    async def close(self) -> None:
        """End all connections."""
        origins, self._origins = list(self._origins.values()), {}
        for origin in origins:
            if origin.close_at is not None:
                origin.close_at.cancel()
            await origin.client.aclose()
        if self._closing:
            await asyncio.wait(self._closing)

    @property
    def open_origins(self) -> int:
        return len(self._origins)

    async def _follow(self, request: EgressRequest) -> EgressReply:
        hop = Hop(
            method=request.method,
            url=parsed_url(request.url),
            headers=dict(request.headers),
            secret_headers=dict(request.secret_headers),
            body=request.body,
        )
        for _ in range(self._limits.fetch_redirects + 1):
            self._check(hop.url)
            reply, location = await self._exchange(hop)
            if location is None:
                return reply
            hop = next_hop(hop, reply.status, location, request)
        raise FetchFailedError(f"it was redirected more than {self._limits.fetch_redirects} times")

    def _check(self, url: httpx.URL) -> None:
        if is_allowed(url.host, port_of(url), self._allowed) and url.scheme in ("http", "https"):
            why = "it carries credentials" if url.userinfo else None
        else:
            why = url_refusal(url.scheme, url.host, has_credentials=bool(url.userinfo))
        if why is not None:
            raise EgressRefusedError(f"{shown(url)} is not fetched: {why}. {NOT_SENT}")

    async def _exchange(self, hop: Hop) -> tuple[EgressReply, str | None]:
        """The reply, or where it sends one to."""
        async with self._client(hop.url) as client:
            response = await self._head(client, hop)
            try:
                location = response.headers.get("location")
                if location is not None and is_redirect(response.status_code):
                    return reply_of(hop, response, b""), location
                return reply_of(hop, response, await self._body(hop, response)), None
            finally:
                await response.aclose()

    async def _head(self, client: httpx.AsyncClient, hop: Hop) -> httpx.Response:
        connect_s = self._limits.connect_timeout_ms / 1000
        request = client.build_request(
            hop.method,
            hop.url,
            headers={**hop.headers, **hop.secret_headers, "accept-encoding": "gzip, deflate"},
            content=hop.body or None,
            timeout=httpx.Timeout(None, connect=connect_s),
        )
        try:
            async with asyncio.timeout(self._limits.fetch_headers_ms / 1000):
                return await client.send(request, stream=True, follow_redirects=False, auth=None)
        except TimeoutError:
            seconds = self._limits.fetch_headers_ms / 1000
            raise FetchTimeoutError(f"no headers from {shown(hop.url)} within {seconds:g} s") from None
        except TRANSPORT_ERRORS as error:
            raise failed(hop.url, error) from error

    async def _body(self, hop: Hop, response: httpx.Response) -> bytes:
        try:
            async with asyncio.timeout(self._limits.fetch_body_ms / 1000):
                return await self._read(hop, response)
        except TimeoutError:
            seconds = self._limits.fetch_body_ms / 1000
            raise FetchTimeoutError(f"no whole body from {shown(hop.url)} within {seconds:g} s") from None
        except (*TRANSPORT_ERRORS, zlib.error) as error:
            raise failed(hop.url, error) from error

    async def _read(self, hop: Hop, response: httpx.Response) -> bytes:
        most = self._limits.fetch_body_bytes
        inflate = inflating(response.headers.get("content-encoding", ""), hop)
        body = bytearray()
        async for raw in response.aiter_raw():
            left = raw
            while left:
                body += left if inflate is None else inflate.take(left, most + 1 - len(body))
                if len(body) > most:
                    raise EgressRefusedError(
                        f"the body from {shown(hop.url)} is larger than a fetch keeps ({most:,} bytes); "
                        "not tried again. Ask for less, or fetch it in parts"
                    )
                left = b"" if inflate is None else inflate.left
        refuse_cut(inflate, hop, begun=bool(body))
        return bytes(body)

    @asynccontextmanager
    async def _client(self, url: httpx.URL) -> AsyncIterator[httpx.AsyncClient]:
        name = f"{url.scheme}://{url.netloc.decode()}"
        origin = self._origins.get(name)
        if origin is None:
            origin = self._origins[name] = _Origin(client=self._new_client())
        if origin.close_at is not None:
            origin.close_at.cancel()
            origin.close_at = None
        origin.in_use += 1
        try:
            yield origin.client
        finally:
            origin.in_use -= 1
            if not origin.in_use and self._origins.get(name) is origin:
                keep_s = self._limits.keepalive_s
                origin.close_at = asyncio.get_running_loop().call_later(keep_s, self._close_idle, name)

    def _close_idle(self, name: str) -> None:
        origin = self._origins.pop(name, None)
        if origin is not None:
            task = asyncio.get_running_loop().create_task(origin.client.aclose())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    def _new_client(self) -> httpx.AsyncClient:
        if self._tls is None:
            self._tls = httpx.create_ssl_context(trust_env=False)
        return httpx.AsyncClient(
            transport=CheckedTransport(self._network, self._tls, self._limits),
            follow_redirects=False,
            trust_env=False,
            headers={"user-agent": "playlane"},
        )
