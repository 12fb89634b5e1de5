"""Fetches from the public network: one attempt with its deadlines, every redirect checked anew."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpcore
import httpx

from runtime.errors import EgressRefusedError, FetchFailedError, FetchTimeoutError
from runtime.execution_api.egress_connections import CheckedNetwork, CheckedTransport, Resolve, resolve
from runtime.model.fetch import EgressReply, EgressRequest
from runtime.policy.egress import AllowedHost, is_allowed, url_refusal
from runtime.policy.fetching import is_redirect, redirected
from runtime.policy.limits import Limits

_PART_BYTES = 1024 * 1024
_NOT_SENT = "Nothing was sent, and it is not tried again"


@dataclass(slots=True, kw_only=True)
class _Origin:
    """The connections of one origin; closed when nobody used them for a while."""

    client: httpx.AsyncClient
    in_use: int = 0
    close_at: asyncio.TimerHandle | None = None


@dataclass(slots=True, kw_only=True)
class _Hop:
    """The request as it stands after so many redirects."""

    method: str
    url: httpx.URL
    headers: dict[str, str]
    secret_headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)


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
        parsed = _parsed(url)
        return is_allowed(parsed.host, _port(parsed), self._allowed)

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
        hop = _Hop(method="GET", url=_parsed(url), headers={}, secret_headers={}, body=b"")
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
                        hop = _next(hop, response.status_code, location, request)
                    finally:
                        await response.aclose()
        raise FetchFailedError(f"it was redirected more than {self._limits.fetch_redirects} times")

    async def _parts(self, hop: _Hop, response: httpx.Response) -> AsyncIterator[bytes]:
        if response.status_code != 200:
            raise FetchFailedError(f"{_shown(hop.url)} answered HTTP {response.status_code}")
        inflate = _inflating(response.headers.get("content-encoding", ""), hop)
        raw, stall_s = response.aiter_raw(), self._limits.fetch_body_ms / 1000
        while True:
            try:
                async with asyncio.timeout(stall_s):
                    part = await anext(raw, None)
                if part is None:
                    return
                while part:
                    yield part if inflate is None else inflate.decompress(part, _PART_BYTES)
                    part = b"" if inflate is None else inflate.unconsumed_tail
            except TimeoutError:
                raise FetchTimeoutError(f"{_shown(hop.url)} sent nothing for {stall_s:g} s") from None
            except (*_TRANSPORT_ERRORS, zlib.error) as error:
                raise _failed(hop.url, error) from error

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
        hop = _Hop(
            method=request.method,
            url=_parsed(request.url),
            headers=dict(request.headers),
            secret_headers=dict(request.secret_headers),
            body=request.body,
        )
        for _ in range(self._limits.fetch_redirects + 1):
            self._check(hop.url)
            reply, location = await self._exchange(hop)
            if location is None:
                return reply
            hop = _next(hop, reply.status, location, request)
        raise FetchFailedError(f"it was redirected more than {self._limits.fetch_redirects} times")

    def _check(self, url: httpx.URL) -> None:
        if is_allowed(url.host, _port(url), self._allowed) and url.scheme in ("http", "https"):
            why = "it carries credentials" if url.userinfo else None
        else:
            why = url_refusal(url.scheme, url.host, has_credentials=bool(url.userinfo))
        if why is not None:
            raise EgressRefusedError(f"{_shown(url)} is not fetched: {why}. {_NOT_SENT}")

    async def _exchange(self, hop: _Hop) -> tuple[EgressReply, str | None]:
        """The reply, or where it sends one to."""
        async with self._client(hop.url) as client:
            response = await self._head(client, hop)
            try:
                location = response.headers.get("location")
                if location is not None and is_redirect(response.status_code):
                    return _reply(hop, response, b""), location
                return _reply(hop, response, await self._body(hop, response)), None
            finally:
                await response.aclose()

    async def _head(self, client: httpx.AsyncClient, hop: _Hop) -> httpx.Response:
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
            raise FetchTimeoutError(f"no headers from {_shown(hop.url)} within {seconds:g} s") from None
        except _TRANSPORT_ERRORS as error:
            raise _failed(hop.url, error) from error

    async def _body(self, hop: _Hop, response: httpx.Response) -> bytes:
        try:
            async with asyncio.timeout(self._limits.fetch_body_ms / 1000):
                return await self._read(hop, response)
        except TimeoutError:
            seconds = self._limits.fetch_body_ms / 1000
            raise FetchTimeoutError(f"no whole body from {_shown(hop.url)} within {seconds:g} s") from None
        except (*_TRANSPORT_ERRORS, zlib.error) as error:
            raise _failed(hop.url, error) from error

    async def _read(self, hop: _Hop, response: httpx.Response) -> bytes:
        most = self._limits.fetch_body_bytes
        inflate = _inflating(response.headers.get("content-encoding", ""), hop)
        body = bytearray()
        async for part in response.aiter_raw():
            body += part if inflate is None else inflate.decompress(part, most + 1 - len(body))
            if len(body) > most or (inflate is not None and inflate.unconsumed_tail):
                raise EgressRefusedError(
                    f"the body from {_shown(hop.url)} is larger than a fetch keeps ({most:,} bytes); "
                    "not tried again. Ask for less, or fetch it in parts"
                )
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


_TRANSPORT_ERRORS = (
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
    httpx.HTTPError,
    httpx.StreamError,
    OSError,
)


def _parsed(url: str) -> httpx.URL:
    try:
        return httpx.URL(url)
    except (httpx.InvalidURL, ValueError) as error:
        raise EgressRefusedError(f"a fetch was given no URL: {error}. {_NOT_SENT}") from None


def _port(url: httpx.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def _next(hop: _Hop, status: int, location: str, request: EgressRequest) -> _Hop:
    try:
        url = hop.url.join(location)
    except (httpx.InvalidURL, ValueError) as error:
        raise EgressRefusedError(
            f"{_shown(hop.url)} redirects to no URL ({error}); not tried again"
        ) from None
    same = (url.scheme, url.host, _port(url)) == (hop.url.scheme, hop.url.host, _port(hop.url))
    then = redirected(status, hop.method, hop.headers, same_origin=same)
    if then.keeps_body and request.has_secret_body and not same:
        raise EgressRefusedError(
            f"{_shown(hop.url)} redirects to another origin, {_shown(url)}, which would be given the secret in the "
            "body; not tried again. Fetch that URL itself if it is meant"
        )
    return _Hop(
        method=then.method,
        url=url.copy_with(fragment=None),
        headers=then.headers,
        secret_headers=hop.secret_headers if same else {},
        body=hop.body if then.keeps_body else b"",
    )


def _reply(hop: _Hop, response: httpx.Response, body: bytes) -> EgressReply:
    headers = {name.lower(): value for name, value in response.headers.items()}
    for name in ("content-encoding", "content-length", "transfer-encoding"):
        headers.pop(name, None)  # the body is kept decoded
    return EgressReply(
        status=response.status_code,
        reason=response.reason_phrase,
        url=str(hop.url),
        headers=headers,
        body=body,
    )


def _inflating(encoding: str, hop: _Hop) -> Any:
    """None for a body as it is; never inflates more than the body may hold."""
    match encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip" | "deflate":
            return zlib.decompressobj(zlib.MAX_WBITS | 32)
        case other:
            raise FetchFailedError(
                f"{_shown(hop.url)} answers in an encoding that was not asked for: {other!r:.40}"
            )


def _failed(url: httpx.URL, error: Exception) -> FetchFailedError:
    said = f"{type(error).__name__}: {str(error)[:200]}".rstrip(": ")
    return FetchFailedError(f"no whole answer from {_shown(url)}: {said}")


def _shown(url: httpx.URL) -> str:
    """Scheme, host and path: a query may hold what nobody should read."""
    return str(url.copy_with(query=None, fragment=None, userinfo=b""))[:300]
