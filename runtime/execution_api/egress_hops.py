"""A fetch on its way: the request as redirects leave it, what came back, and how a URL is shown."""

from dataclasses import dataclass, field

import httpcore
import httpx

from runtime.errors import EgressRefusedError, FetchFailedError
from runtime.execution_api.inflating import Inflating
from runtime.model.fetch import EgressReply, EgressRequest
from runtime.policy.fetching import redirected

NOT_SENT = "Nothing was sent, and it is not tried again"


@dataclass(slots=True, kw_only=True)
class Hop:
    """The request as it stands after so many redirects."""

    method: str
    url: httpx.URL
    headers: dict[str, str]
    secret_headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)


TRANSPORT_ERRORS = (
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
    httpx.HTTPError,
    httpx.StreamError,
    OSError,
)


def parsed_url(url: str) -> httpx.URL:
    try:
        return httpx.URL(url)
    except (httpx.InvalidURL, ValueError) as error:
        raise EgressRefusedError(f"a fetch was given no URL: {error}. {NOT_SENT}") from None


def port_of(url: httpx.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


def next_hop(hop: Hop, status: int, location: str, request: EgressRequest) -> Hop:
    try:
        url = hop.url.join(location)
    except (httpx.InvalidURL, ValueError) as error:
        raise EgressRefusedError(f"{shown(hop.url)} redirects to no URL ({error}); not tried again") from None
    same = (url.scheme, url.host, port_of(url)) == (hop.url.scheme, hop.url.host, port_of(hop.url))
    then = redirected(status, hop.method, hop.headers, same_origin=same)
    if then.keeps_body and request.has_secret_body and not same:
        raise EgressRefusedError(
            f"{shown(hop.url)} redirects to another origin, {shown(url)}, which would be given the secret in the "
            "body; not tried again. Fetch that URL itself if it is meant"
        )
    return Hop(
        method=then.method,
        url=url.copy_with(fragment=None),
        headers=then.headers,
        secret_headers=hop.secret_headers if same else {},
        body=hop.body if then.keeps_body else b"",
    )


def reply_of(hop: Hop, response: httpx.Response, body: bytes) -> EgressReply:
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


def inflating(encoding: str, hop: Hop) -> Inflating | None:
    """None for a body as it is; never inflates more than the body may hold."""
    match encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip" | "deflate":
            return Inflating(shown(hop.url))
        case other:
            raise FetchFailedError(
                f"{shown(hop.url)} answers in an encoding that was not asked for: {other!r:.40}"
            )


def refuse_cut(inflate: Inflating | None, hop: Hop, *, begun: bool) -> None:
    """A packed body whose end never came is no whole answer, though its connection ended well."""
    if inflate is not None and begun and not inflate.is_whole:
        raise FetchFailedError(f"no whole answer from {shown(hop.url)}: its packed body is cut")


def failed(url: httpx.URL, error: Exception) -> FetchFailedError:
    said = f"{type(error).__name__}: {str(error)[:200]}".rstrip(": ")
    return FetchFailedError(f"no whole answer from {shown(url)}: {said}")


def shown(url: httpx.URL) -> str:
    """Scheme, host and path: a query may hold what nobody should read."""
    return str(url.copy_with(query=None, fragment=None, userinfo=b""))[:300]
