"""What can go wrong with one physical request, as values."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class FailureClass(StrEnum):
    TRANSPORT_BEFORE_DISPATCH = "transport_before_dispatch"  # no byte of the request left
    AMBIGUOUS = "ambiguous"  # sent; no status line came back
    RATE_LIMITED = "rate_limited"  # 429
    TRANSIENT = "transient"  # 408, 425, 5xx
    GATEWAY_502 = "gateway_502"  # 502 that does not carry the API's own request id
    IN_PROGRESS = "in_progress"  # the same key is being worked on
    CREDITS_EXHAUSTED = "credits_exhausted"  # 402 of the platform, or one that can't be read
    PROVIDER_UNAVAILABLE = "provider_unavailable"  # 402 of a provider's own account
    PROVIDER_EXHAUSTED = (
        "provider_exhausted"  # the provider's quota of this organisation is used up until a moment
    )
    AUTH = "auth"  # 401, 403
    AUTH_SCOPE_CHANGED = (
        "auth_scope_changed"  # the credentials behind the tool are others than the call was keyed by
    )
    BAD_REQUEST = "bad_request"  # 400, 413, 422: one item may have spoilt the batch
    NOT_FOUND = "not_found"  # 404
    REJECTED = "rejected"  # any other final answer
    BODY_STALLED = "body_stalled"  # status line came, then the body stopped
    BODY_CUT = "body_cut"  # connection ended inside the body
    BODY_INVALID = "body_invalid"  # body is whole, but not the reply that was agreed


# Error codes that say that a provider's quota is used up.
QUOTA_CODES = frozenset({"provider_exhausted", "provider_quota_exhausted", "quota_exhausted"})

# A reply in one of these classes proves that nothing was charged.
NOT_CHARGED = frozenset(
    {
        FailureClass.TRANSPORT_BEFORE_DISPATCH,
        FailureClass.RATE_LIMITED,
        FailureClass.GATEWAY_502,
        FailureClass.CREDITS_EXHAUSTED,
        FailureClass.PROVIDER_UNAVAILABLE,
        FailureClass.PROVIDER_EXHAUSTED,
        FailureClass.AUTH,
        FailureClass.AUTH_SCOPE_CHANGED,
        FailureClass.BAD_REQUEST,
        FailureClass.NOT_FOUND,
    }
)


# What follows by itself, or what somebody must do; part of every message.
NEXT_STEP = {
    FailureClass.TRANSPORT_BEFORE_DISPATCH: "nothing was sent; it is tried a few times, then by a later run",
    FailureClass.AMBIGUOUS: "it may have been charged; only a fenced or fixture call is sent again by itself",
    FailureClass.RATE_LIMITED: "it is tried again after the wait for a limited time, then by a later run",
    FailureClass.TRANSIENT: "it is tried again only where the tool allows it, then by a later run",
    FailureClass.GATEWAY_502: "the gateway never reached the API; it is tried a few times, then by a later run",
    FailureClass.IN_PROGRESS: "an earlier send is still being worked on; it is asked for again for a limited time",
    FailureClass.CREDITS_EXHAUSTED: "the run is halted; add credits and run again",
    FailureClass.PROVIDER_UNAVAILABLE: "the provider's own account must be topped up; a later run may ask again",
    FailureClass.PROVIDER_EXHAUSTED: "its lane is closed until then; a later run may ask again",
    FailureClass.AUTH: "check the execution API token of this organisation; a later run may ask again",
    FailureClass.AUTH_SCOPE_CHANGED: "the call is keyed anew and asked once more; a second change is final",
    FailureClass.BAD_REQUEST: "a batch is split to find the item; a single call is final",
    FailureClass.NOT_FOUND: "the tool or operation does not exist there; final",
    FailureClass.REJECTED: "final",
    FailureClass.BODY_STALLED: "it may have been charged; only a fenced or fixture call is sent again by itself",
    FailureClass.BODY_CUT: "it may have been charged; only a fenced or fixture call is sent again by itself",
    FailureClass.BODY_INVALID: "it may have been charged; only a fenced or fixture call is sent again by itself",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One failed request: its class, what the API said, and how long it asked us to wait."""

    failure_class: FailureClass
    operation: str
    message: str
    code: str
    status: int | None = None
    retry_after_ms: float | None = None
    retry_after_capped: bool = False  # the reply asked for more than the policy allows
    request_id: str = ""
    tool: str = ""
    attempt: int = 0  # how often the request had been sent when it failed, this send included
    retry_at: str | None = None  # of a quota: when there is one again, ISO 8601
    fence_attested: bool = False  # the reply said that a repeat under the same key is harmless

    @property
    def not_charged(self) -> bool:
        """Whether the reply proves that nothing was charged."""
        return self.failure_class in NOT_CHARGED

    def describe(self) -> str:
        """What happened, to which operation, and what follows."""
        known = {
            "tool": self.tool,
            "attempt": self.attempt,
            "status": self.status,
            "request": self.request_id,
        }
        where = ", ".join(f"{name} {value}" for name, value in known.items() if value)
        step = f"{self.failure_class.value}: {NEXT_STEP[self.failure_class]}"
        return f"{self.message} ({where}; {step})" if where else f"{self.message} ({step})"

    def details(self) -> dict[str, Any]:
        """The failure as a JSON object, for an error's payload."""
        return {
            "failure_class": self.failure_class.value,
            "operation": self.operation,
            "status": self.status,
            "retry_after_ms": self.retry_after_ms,
            "request_id": self.request_id,
            "attempt": self.attempt,
            **({"retry_at": self.retry_at} if self.retry_at else {}),
        }
