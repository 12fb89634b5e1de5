"""What to do about a failed request: one stated action per failure class."""

from dataclasses import dataclass

from runtime.model.failure import Failure, FailureClass
from runtime.policy.limits import Limits

LONG_INFERENCE_TOOLS = frozenset(
    {
        "deeplineagent",
        "deeplineagent_deeplineagent",
        "ai_inference",
        "deeplineagent_ai_inference",
        "aiinference",
    }
)
CONTROL_RETRIED_STATUSES = frozenset({408, 429, 502, 503, 504, *range(520, 525)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """Send the same request again, same keys, under a new ticket."""

    after_ms: float
    same_invocation: bool = False  # the reply was about the earlier send: its invocation attempt is kept


@dataclass(frozen=True, slots=True, kw_only=True)
class FailItem:
    """Every call of the request fails. `terminal`: final for this input; else repairable by a later run."""

    terminal: bool


@dataclass(frozen=True, slots=True)
class Bisect:
    """Send both halves as new batches, to find the item that spoils it."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody knows what became of it; not sent again by itself."""


@dataclass(frozen=True, slots=True)
class HaltRun:
    """Nothing further may be paid for by these runs."""


Action = Retry | FailItem | Bisect | Unknown | HaltRun

_UNCERTAIN = frozenset(
    {
        FailureClass.AMBIGUOUS,
        FailureClass.BODY_STALLED,
        FailureClass.BODY_CUT,
        FailureClass.BODY_INVALID,
    }
)
_SAFE_TRANSPORT = frozenset({FailureClass.TRANSPORT_BEFORE_DISPATCH, FailureClass.GATEWAY_502})
_FINAL = frozenset({FailureClass.NOT_FOUND, FailureClass.REJECTED})


def decide(
    failure: Failure,
    *,
    attempt: int,
    elapsed_ms: float,
    members: int,
    limits: Limits,
    transient_http_retry_safe: bool = False,
    replay_safe: bool = False,
) -> Action:
    """The action after the `attempt`-th failure of this kind of request (first = 1), `elapsed_ms` after the first.

    `replay_safe`: a verified fence or fixture mode makes a repeated send harmless.
    """
    kind = failure.failure_class
    if kind in _SAFE_TRANSPORT:
        return _by_attempts(failure, attempt, limits, otherwise=FailItem(terminal=False))
    if kind in _UNCERTAIN:
        return _by_attempts(failure, attempt, limits, otherwise=Unknown()) if replay_safe else Unknown()
    if kind is FailureClass.TRANSIENT:
        refused = FailItem(terminal=False)
        return (
            _by_attempts(failure, attempt, limits, otherwise=refused)
            if transient_http_retry_safe
            else refused
        )
    if kind is FailureClass.RATE_LIMITED:
        within = limits.rate_limited_total_ms - elapsed_ms
        return _by_time(failure, attempt, within, limits, otherwise=FailItem(terminal=False))
    if kind is FailureClass.IN_PROGRESS:
        within = limits.in_progress_total_ms - elapsed_ms
        return _by_time(failure, attempt, within, limits, otherwise=Unknown())
    if kind is FailureClass.CREDITS_EXHAUSTED:
        return HaltRun()
    if kind is FailureClass.BAD_REQUEST and members > 1:
        return Bisect()
    return FailItem(terminal=kind in _FINAL or kind is FailureClass.BAD_REQUEST)


def deadline_ms(tool: str, *, asked_ms: float | None, declared_ms: float | None, limits: Limits) -> float:
    """How long one send of `tool` may take: what the author asked, else the tool's own, else the default."""
    if asked_ms is not None and asked_ms > 0:
        return asked_ms
    if declared_ms is not None and declared_ms > 0:
        return declared_ms
    is_long = tool.strip().lower() in LONG_INFERENCE_TOOLS
    return limits.long_inference_timeout_ms if is_long else limits.tool_timeout_ms


def control_delay_ms(attempt: int, limits: Limits) -> float | None:
    """Wait before the next try of a control request, None when the `attempt`-th (first = 1) was the last."""
    if attempt >= limits.control_attempts:
        return None
    delays = limits.control_delays_ms
    return delays[min(attempt, len(delays)) - 1]


def _by_attempts(failure: Failure, attempt: int, limits: Limits, *, otherwise: Action) -> Action:
    if attempt >= limits.transport_attempts:
        return otherwise
    return Retry(after_ms=_wait_ms(failure, attempt, limits))


def _by_time(
    failure: Failure, attempt: int, within_ms: float, limits: Limits, *, otherwise: Action
) -> Action:
    wait_ms = _wait_ms(failure, attempt, limits)
    if wait_ms > within_ms:
        return otherwise
    return Retry(after_ms=wait_ms, same_invocation=failure.failure_class is FailureClass.IN_PROGRESS)


def _wait_ms(failure: Failure, attempt: int, limits: Limits) -> float:
    asked_ms = failure.retry_after_ms
    if asked_ms is None:
        return min(limits.retry_fallback_ms * attempt, limits.retry_wait_max_ms)
    # `Retry-After: 0` must not become a busy loop.
    return max(asked_ms, limits.retry_wait_min_ms)
