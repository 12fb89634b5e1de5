"""What a fetch may do over again, and where a redirect leads. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from runtime.policy.limits import Limits

METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
IDEMPOTENCY_HEADERS = ("idempotency-key", "x-idempotency-key")
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_KEPT_FOR_THIS_RUN = frozenset({408, 425, 429})
_OF_ONE_ORIGIN = frozenset({"authorization", "cookie", "proxy-authorization"})
_OF_A_BODY = frozenset({"content-type", "content-encoding", "content-language", "content-location"})
NEVER_GIVEN = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "proxy-authorization", "te", "upgrade"}
)


_OF_A_QUERY = re.compile(r"[?#].*", re.DOTALL)
_CREDENTIALS = re.compile(r"(?<=//)[^/\\]*@")
SHOWN_CHARS = 300


def shown_url(url: str) -> str:
    """An author's URL as a message names it: without query and credentials, which may hold what nobody should read."""
    return _CREDENTIALS.sub("", _OF_A_QUERY.sub("", url))[:SHOWN_CHARS]


def needs_idempotency_key(method: str, headers: Mapping[str, str]) -> bool:
    """Whether repeating the request could do something twice and nothing tells the server that it is a repeat."""
    return method not in _SAFE and not any(headers.get(name) for name in IDEMPOTENCY_HEADERS)


def may_repeat(method: str, headers: Mapping[str, str]) -> bool:
    """Whether a request whose answer was lost may be sent again."""
    return not needs_idempotency_key(method, headers)


def retry_delay_ms(attempt: int, limits: Limits) -> float | None:
    """The wait after the `attempt`-th (first = 1) lost answer; None if it was the last."""
    return None if attempt >= limits.fetch_attempts else limits.fetch_retry_ms * attempt


def is_for_this_run_only(status: int) -> bool:
    """Whether another run asks for itself: the answer says something about the moment."""
    return status >= 500 or status in _KEPT_FOR_THIS_RUN


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirected:
    """The request that a redirect asks for."""

    method: str
    headers: dict[str, str]
    keeps_body: bool


def is_redirect(status: int) -> bool:
    return status in _REDIRECTS


def redirected(status: int, method: str, headers: Mapping[str, str], *, same_origin: bool) -> Redirected:
    """What goes along: no credentials to another origin, no body where the method becomes GET."""
    turns_to_get = (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST")
    dropped = frozenset[str]() if same_origin else _OF_ONE_ORIGIN
    dropped |= _OF_A_BODY if turns_to_get else frozenset[str]()
    return Redirected(
        method="GET" if turns_to_get else method,
        headers={name: value for name, value in headers.items() if name not in dropped},
        keeps_body=not turns_to_get,
    )
