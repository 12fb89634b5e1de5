"""One HTTP request of a play and its answer, as plain values. Secrets are named here, never held."""

import base64
from dataclasses import dataclass, field
from typing import Any

from runtime.model.canonical_json import digest


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretHeader:
    """A header whose value is a secret: `prefix` and the value of the secret `secret`.

    With `user` it is what HTTP calls basic: `prefix` and the base64 of `user:value`.
    """

    header: str
    secret: str
    prefix: str = ""
    user: str | None = None

    @property
    def marker(self) -> str:
        """What stands for its value wherever it must be told from others."""
        user = "" if self.user is None else f"{self.user}:"
        return f"{self.prefix}{user}[secret {self.secret}]"

    def filled(self, value: str) -> str:
        """The header's value."""
        if self.user is None:
            return self.prefix + value
        return self.prefix + base64.b64encode(f"{self.user}:{value}".encode()).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    """What is asked. Header names are lower case. `timeout_ms`: of all attempts, at most the policy's own."""

    method: str
    url: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    auth: tuple[SecretHeader, ...] = ()
    timeout_ms: float | None = None
    stale_after_seconds: float | None = None
    shown_body: str = ""  # digest of the body, secrets blackened: what tells two requests apart

    def described(self) -> dict[str, Any]:
        """What makes two fetches the same; holds no secret and no body."""
        described: dict[str, Any] = {
            "method": self.method,
            "url": self.url,
            "headers": {**self.headers, **{one.header: one.marker for one in self.auth}},
            "body": self.shown_body,
        }
        if self.stale_after_seconds is not None:
            described["stale_after_seconds"] = self.stale_after_seconds
        return described

    def identity(self) -> str:
        """A digest of what is asked, not of how long it may take or how old the answer may be."""
        described = self.described()
        described.pop("stale_after_seconds", None)
        return digest(["fetch", described])


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressRequest:
    """One attempt, its secrets filled in; lives only while it is sent. `secret_headers` leave no origin."""

    method: str
    url: str
    headers: dict[str, str] = field(repr=False)
    secret_headers: dict[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)
    has_secret_body: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressReply:
    """An answer as it came; `url` is where the last redirect led."""

    status: int
    reason: str
    url: str
    headers: dict[str, str]
    body: bytes = field(repr=False)
