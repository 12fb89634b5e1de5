"""`ctx.fetch`: its arguments checked and as one value, and the response that an author holds."""

import base64
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode, urlsplit, urlunsplit

from runtime.context.secrets import SecretAuth, SecretHandle
from runtime.errors import FetchFailedError, JsonValueError, PlayDefinitionError, SecretTaintError
from runtime.model import json_value
from runtime.model.canonical_json import digest
from runtime.model.fetch import FetchRequest, SecretHeader
from runtime.model.kept_value import KeptValue, plain
from runtime.policy.fetching import IDEMPOTENCY_HEADERS, METHODS, NEVER_GIVEN, needs_idempotency_key
from runtime.policy.limits import Limits

FETCH_KIND = "fetch"
_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")


class FetchResponse(KeptValue):
    """What came back, secrets blackened. Equal live, replayed and read from a sheet."""

    __slots__ = ("_said",)

    def __init__(self, said: Mapping[str, Any]) -> None:
        self._said = dict(said)

    @property
    def status(self) -> int:
        return int(self._said["status"])

    @property
    def ok(self) -> bool:
        """Whether the status is a 2xx."""
        return 200 <= self.status < 300

    @property
    def reason(self) -> str:
        return str(self._said.get("reason", ""))

    @property
    def url(self) -> str:
        """Where the last redirect led."""
        return str(self._said["url"])

    @property
    def headers(self) -> dict[str, str]:
        """By name in lower case."""
        return dict(self._said["headers"])

    @property
    def text(self) -> str:
        """The body as text; what is no text in its character set shows as U+FFFD."""
        kept = self._said.get("text")
        return kept if kept is not None else self.content.decode("utf-8", "replace")

    @property
    def content(self) -> bytes:
        """The body as bytes."""
        if "base64" in self._said:
            return base64.b64decode(self._said["base64"])
        return str(self._said.get("text", "")).encode(str(self._said.get("charset", "utf-8")))

    def json(self) -> Any:
        """The body as JSON; JsonValueError if it is none."""
        try:
            return json_value.loads(self.text.removeprefix("\ufeff").encode())
        except JsonValueError as error:
            raise JsonValueError(error.path, f"what {self.url} answered is no JSON: {error.reason}") from None

    def raise_for_status(self) -> "FetchResponse":
        """Itself if `ok`, else FetchFailedError with the status."""
        if not self.ok:
            raise FetchFailedError(f"{self.url} answered HTTP {self.status} {self.reason}".rstrip())
        return self

    def to_json(self) -> dict[str, Any]:
        return {**self._said, "headers": self.headers}

    def mark(self) -> dict[str, Any]:
        return {"kind": FETCH_KIND}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FetchResponse) and self._said == other._said

    def __hash__(self) -> int:
        return hash((self.status, self.url))

    def __repr__(self) -> str:
        return f"FetchResponse({self.status}, {self.url!r})"


def fetch_request(
    where: str,
    url: Any,
    *,
    method: Any,
    headers: Any,
    params: Any,
    body: Any,
    json: Any,
    auth: Any,
    idempotency_key: Any,
    timeout_ms: Any,
    stale_after_seconds: Any,
    limits: Limits,
    blacken: Callable[[str], str] = str,
) -> FetchRequest:
    """The request, or PlayDefinitionError that names the field and the fix. `blacken`: takes secrets out of text."""
    verb = method.upper() if isinstance(method, str) else method
    if verb not in METHODS:
        raise PlayDefinitionError(
            f"{where}: method is one of {', '.join(sorted(METHODS))}, not {method!r:.40}"
        )
    named = _headers(where, headers, limits)
    if idempotency_key is not None:
        named["idempotency-key"] = _text(where, "idempotency_key", idempotency_key)
    sent, content_type = _body(where, verb, body, json, limits)
    if content_type is not None:
        named.setdefault("content-type", content_type)
    if needs_idempotency_key(verb, named):
        raise PlayDefinitionError(
            f'{where}: a {verb} may be sent again after a crash: give it idempotency_key="..." (the same for every '
            "repeat of the same effect), or use a provider tool for it"
        )
    shown = blacken(sent.decode("utf-8", "backslashreplace")) if sent else ""
    return FetchRequest(
        method=verb,
        url=_url(where, url, params, limits),
        headers=named,
        body=sent,
        auth=_auth(where, auth, named),
        timeout_ms=_positive(where, "timeout_ms", timeout_ms, least=1),
        stale_after_seconds=_positive(where, "stale_after_seconds", stale_after_seconds, least=0),
        shown_body=digest(shown) if sent else "",
    )


def _url(where: str, url: Any, params: Any, limits: Limits) -> str:
    if isinstance(url, SecretHandle) or isinstance(params, SecretHandle):
        raise _in_url(where)
    if not isinstance(url, str) or not url.strip():
        raise PlayDefinitionError(f"{where}: url is the text of an http(s) URL, not {url!r:.80}")
    if params is not None:
        if not isinstance(params, Mapping):
            raise PlayDefinitionError(
                f"{where}: params is a mapping of names to text or numbers, not {params!r:.80}"
            )
        if any(isinstance(item, SecretHandle) for item in params.values()):
            raise _in_url(where)
        pairs = [(str(name), _param(where, name, item)) for name, item in params.items()]
        parts = urlsplit(url)
        url = urlunsplit(parts._replace(query="&".join(filter(None, [parts.query, urlencode(pairs)]))))
    if len(url) > limits.fetch_url_chars:
        raise PlayDefinitionError(f"{where}: url has more than {limits.fetch_url_chars:,} characters")
    return url.strip().partition("#")[0]


def _in_url(where: str) -> SecretTaintError:
    return SecretTaintError(
        f"{where}: a secret never stands in a URL, which ends up in logs everywhere: give it by auth="
        "ctx.secrets.header(...), or in the body"
    )


def _param(where: str, name: Any, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise PlayDefinitionError(f"{where}: params[{name!r:.40}] is text or a number, not {value!r:.80}")
    return str(value)


def _headers(where: str, headers: Any, limits: Limits) -> dict[str, str]:
    if headers is None:
        return {}
    if not isinstance(headers, Mapping):
        raise PlayDefinitionError(
            f"{where}: headers is a mapping of names to text, not {type(headers).__name__}"
        )
    named: dict[str, str] = {}
    for name, value in headers.items():
        low = name.lower() if isinstance(name, str) else ""
        if isinstance(value, (SecretHandle, SecretAuth)):
            raise SecretTaintError(
                f'{where}: headers["{low}"] is a secret: give it by auth=ctx.secrets.bearer(...) or '
                "auth=ctx.secrets.header(..., header)"
            )
        if not low or not _TOKEN.issuperset(low) or low in NEVER_GIVEN:
            raise PlayDefinitionError(f"{where}: headers can't hold {name!r:.80}: leave it out")
        named[low] = _text(where, f'headers["{low}"]', value)
    if len(named) > limits.fetch_headers or sum(map(len, named.values())) > limits.fetch_header_bytes:
        raise PlayDefinitionError(f"{where}: headers are too many or too long")
    return named


def _text(where: str, what: str, value: Any) -> str:
    if not isinstance(value, str) or not value.isascii() or not (value.isprintable() or not value):
        raise PlayDefinitionError(f"{where}: {what} is text of printable ASCII, not {type(value).__name__}")
    return value.strip()


def _body(where: str, verb: str, body: Any, json: Any, limits: Limits) -> tuple[bytes, str | None]:
    if body is not None and json is not None:
        raise PlayDefinitionError(f"{where}: give body= or json=, not both")
    if body is None and json is None:
        return b"", None
    if verb in ("GET", "HEAD"):
        raise PlayDefinitionError(f"{where}: a {verb} has no body: use params=, or another method")
    if json is not None:
        try:
            data, kind = json_value.dumps(json_value.check(plain(json)[0], path="$.json")), "application/json"
        except JsonValueError as error:
            raise PlayDefinitionError(f"{where}: json can't be sent: {error}") from None
    elif isinstance(body, (str, bytes)):
        data = body.encode() if isinstance(body, str) else body
        kind = "text/plain; charset=utf-8" if isinstance(body, str) else "application/octet-stream"
    else:
        raise PlayDefinitionError(
            f"{where}: body is text or bytes, not {type(body).__name__}"
            + (": await the secret first" if isinstance(body, SecretHandle) else "")
        )
    if len(data) > limits.fetch_request_bytes:
        raise PlayDefinitionError(f"{where}: a body holds at most {limits.fetch_request_bytes:,} bytes")
    return data, kind


def _auth(where: str, auth: Any, named: dict[str, str]) -> tuple[SecretHeader, ...]:
    if auth is None:
        return ()
    given: Sequence[Any] = auth if isinstance(auth, (list, tuple)) else (auth,)
    if not all(isinstance(one, SecretAuth) for one in given):
        # What was given is not shown: it may be a secret.
        raise PlayDefinitionError(
            f"{where}: auth is made by ctx.secrets.bearer(...), .basic(...) or .header(...), or a list of those"
        )
    headers = tuple(one.header for one in given)
    names = [one.header for one in headers]
    doubled = sorted({name for name in names if names.count(name) > 1 or name in named})
    if doubled or any(name in NEVER_GIVEN or name in IDEMPOTENCY_HEADERS for name in names):
        raise PlayDefinitionError(f"{where}: auth can't give the header {', '.join(doubled or names)} here")
    return headers


def _positive(where: str, what: str, value: Any, *, least: float) -> float | None:
    if value is None:
        return None
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not math.isfinite(value)
        or value < least
    ):
        raise PlayDefinitionError(f"{where}: {what} is a number from {least:g} up, not {value!r:.40}")
    return float(value)
