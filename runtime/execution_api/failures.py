"""Turns what httpx raises and what the API refuses into failure classes. Pure but for the types it reads."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

import httpx

from runtime.execution_api import wire
from runtime.model.failure import QUOTA_CODES, Failure, FailureClass
from runtime.policy import quota
from runtime.policy.limits import Limits
from runtime.policy.retry_after import RetryAfter, http_date, retry_after

_BEFORE_DISPATCH: tuple[type[Exception], ...] = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.UnsupportedProtocol,
    httpx.ProxyError,
    httpx.InvalidURL,
    httpx.LocalProtocolError,
)
_BY_STATUS = {
    400: FailureClass.BAD_REQUEST,
    401: FailureClass.AUTH,
    403: FailureClass.AUTH,
    404: FailureClass.NOT_FOUND,
    408: FailureClass.TRANSIENT,
    413: FailureClass.BAD_REQUEST,
    422: FailureClass.BAD_REQUEST,
    425: FailureClass.TRANSIENT,
    429: FailureClass.RATE_LIMITED,
}


class Reply(Protocol):
    """A reply as it came; `broken` says that its body is not whole."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> httpx.Headers: ...

    @property
    def body(self) -> bytes: ...

    @property
    def broken(self) -> Failure | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiError:
    """The error object of a refused request, as far as it could be read."""

    code: str | None = None
    message: str | None = None
    origin: str | None = None
    retry_at: str | None = None


def api_error(data: bytes, limits: Limits) -> ApiError:
    """Read an error body of any shape; what can't be read is left out."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        return ApiError()
    return api_error_of(body, limits)


def api_error_of(body: Any, limits: Limits) -> ApiError:
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, str):
        return ApiError(message=_text(error, limits))
    if not isinstance(error, dict):
        return ApiError()
    return ApiError(
        code=_text(error.get("code"), limits),
        message=_text(error.get("message"), limits),
        origin=_text(error.get("failure_origin", error.get("origin")), limits),
        retry_at=_text(error.get("retry_at", error.get("retryAt")), limits),
    )


def classify(status: int, error: ApiError, *, marked: bool) -> FailureClass:
    """The class of a refused request. `marked`: the reply carries the API's own request id header."""
    if error.code in wire.IN_PROGRESS_CODES:
        return FailureClass.IN_PROGRESS
    if error.code == wire.AUTH_SCOPE_CHANGED:
        return FailureClass.AUTH_SCOPE_CHANGED
    if (error.code or "").lower() in QUOTA_CODES:
        return FailureClass.PROVIDER_EXHAUSTED
    if status == 402:
        of_provider = error.origin == "provider"
        return FailureClass.PROVIDER_UNAVAILABLE if of_provider else FailureClass.CREDITS_EXHAUSTED
    if status == 502 and not marked:
        return FailureClass.GATEWAY_502
    if status >= 500:
        return FailureClass.TRANSIENT
    return _BY_STATUS.get(status, FailureClass.REJECTED)


def refused_reply(operation: str, reply: Reply, *, now: datetime, limits: Limits) -> Failure:
    """A refusal whose body can't be read is classed by its status where that alone is certain."""
    error = api_error(reply.body, limits)
    if reply.broken is not None and reply.status == 402:
        error = ApiError(code=wire.BODY_UNREADABLE_402, message=reply.broken.message)
    elif reply.broken is not None and reply.status != 429:
        return reply.broken
    return refused(operation, reply.status, reply.headers, error, now=now, limits=limits)


def refused(
    operation: str, status: int, headers: Mapping[str, str], error: ApiError, *, now: datetime, limits: Limits
) -> Failure:
    """The failure of a reply that is not a success."""
    wait, retry_at = asked_wait(headers, now, limits), None
    code = error.code or headers.get(wire.ERROR_CODE) or f"http_{status}"
    request_id = headers.get(wire.REQUEST_ID, "")
    kind = classify(status, ApiError(code=code, origin=error.origin), marked=bool(request_id))
    if kind is FailureClass.PROVIDER_EXHAUSTED:
        code = kind.value
        wait, retry_at = quota_wait(error.retry_at, headers, now=now, limits=limits)
    said = f": {error.message}" if error.message else ""
    where = f" to {_host(headers)} (redirects are refused)" if 300 <= status < 400 else ""
    return Failure(
        failure_class=kind,
        operation=operation,
        message=f"{operation} answered HTTP {status}{where}{said}",
        code=code,
        status=status,
        retry_after_ms=None if wait is None else wait.wait_ms,
        retry_after_capped=wait is not None and wait.capped,
        retry_at=retry_at,
        request_id=request_id,
    )


def failed_inside(operation: str, reply: Reply, error: object, *, now: datetime, limits: Limits) -> Failure:
    """A good reply that says it failed: final, but for a quota that is used up."""
    said = api_error_of({"error": error}, limits)
    what = f"answered that it failed: {said.message or said.code or 'no reason given'}"
    if (said.code or "").lower() not in QUOTA_CODES:
        return plain(operation, FailureClass.REJECTED, what, code=said.code, status=reply.status)
    wait, retry_at = quota_wait(said.retry_at, reply.headers, now=now, limits=limits)
    return replace(
        plain(operation, FailureClass.PROVIDER_EXHAUSTED, what, status=reply.status),
        retry_after_ms=wait.wait_ms,
        retry_after_capped=wait.capped,
        retry_at=retry_at,
    )


def attests_fence(headers: Mapping[str, str]) -> bool:
    """Whether a reply promises that a repeated key has no second effect."""
    return headers.get(wire.INVOCATION_FENCE) == wire.FENCE_VERSION


def numbered(failure: Failure, *, tool: str, attempt: int) -> Failure:
    """The failure with the tool it is about and how often its request had been sent."""
    return replace(failure, tool=tool, attempt=attempt)


def asked_wait(headers: Mapping[str, str], now: datetime, limits: Limits) -> RetryAfter | None:
    return retry_after(
        headers.get(wire.RETRY_AFTER),
        reply_date=headers.get(wire.DATE),
        now=now,
        max_ms=limits.retry_after_max_ms,
    )


def quota_wait(
    retry_at: str | None, headers: Mapping[str, str], *, now: datetime, limits: Limits
) -> tuple[RetryAfter, str]:
    """How long a used up quota closes its scope, and until when; by the reply's own clock where it shows one."""
    origin = replied_at(headers, now)
    until = quota.moment(retry_at)
    if until is not None:
        asked_ms = max(0.0, (until - origin).total_seconds() * 1000)
    else:
        header = retry_after(
            headers.get(wire.RETRY_AFTER),
            reply_date=headers.get(wire.DATE),
            now=now,
            max_ms=limits.later_max_ms,
        )
        asked_ms = limits.quota_wait_ms if header is None else header.wait_ms
        until = origin + timedelta(milliseconds=asked_ms)
    wait_ms = min(asked_ms, limits.later_max_ms)
    return RetryAfter(wait_ms=wait_ms, capped=asked_ms > wait_ms), quota.moment_text(until)


def replied_at(headers: Mapping[str, str], now: datetime) -> datetime:
    """When a reply was made, by its own clock where it shows one."""
    return http_date(headers.get(wire.DATE, ""), now=now) or now


def transport_class(error: Exception) -> FailureClass:
    """Whether a transport error came before any byte of the request left, or leaves its fate open."""
    return (
        FailureClass.TRANSPORT_BEFORE_DISPATCH
        if isinstance(error, _BEFORE_DISPATCH)
        else FailureClass.AMBIGUOUS
    )


def plain(
    operation: str, kind: FailureClass, what: str, *, code: str | None = None, status: int | None = None
) -> Failure:
    """A failure that no error body describes."""
    return Failure(
        failure_class=kind,
        operation=operation,
        message=f"{operation}: {what}",
        code=code or kind.value,
        status=status,
    )


def _text(value: Any, limits: Limits) -> str | None:
    if not isinstance(value, str) or not value.strip():
        return None
    clean = value.replace("\x00", " ").encode("utf-8", "replace").decode()
    return clean[: limits.error_chars]


def _host(headers: Mapping[str, str]) -> str:
    try:
        return httpx.URL(headers.get("location", "")).host or "no host"
    except httpx.InvalidURL:
        return "an unreadable address"
