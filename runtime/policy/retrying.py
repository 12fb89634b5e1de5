"""What to do about a failed request: one table, one rule per failure class."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

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


@dataclass(frozen=True, slots=True)
class Rekey:
    """Nothing is stored: the callers ask once more under the keys of the present auth scope."""


End = FailItem | Bisect | Unknown | HaltRun | Rekey
Action = Retry | End

REPAIRABLE = FailItem(terminal=False)
FINAL = FailItem(terminal=True)


class Counter(StrEnum):
    """Failures of one counter use up the same bound; those of others don't."""

    TRANSPORT = "transport"
    TRANSIENT = "transient"
    RATE_LIMITED = "rate_limited"
    IN_PROGRESS = "in_progress"
    NONE = "none"  # never repeated


class Repeat(StrEnum):
    """Under what condition the same request is sent again."""

    NEVER = "never"
    ALWAYS = "always"
    TOOL_ALLOWS = "where the tool allows it"
    REPLAY_SAFE = "with a verified fence or in fixture mode"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """`then`: what follows when the request isn't sent again, or its bound is used up."""

    happened: str
    then: End
    repeat: Repeat = Repeat.NEVER
    counter: Counter = Counter.NONE


_AMBIGUOUS_BODY = "status line came, then the body {}"
RULES: dict[FailureClass, Rule] = {
    FailureClass.TRANSPORT_BEFORE_DISPATCH: Rule(
        happened="no byte of the request left",
        repeat=Repeat.ALWAYS,
        counter=Counter.TRANSPORT,
        then=REPAIRABLE,
    ),
    FailureClass.GATEWAY_502: Rule(
        happened="502 without the API's request id",
        repeat=Repeat.ALWAYS,
        counter=Counter.TRANSPORT,
        then=REPAIRABLE,
    ),
    FailureClass.AMBIGUOUS: Rule(
        happened="sent, and no status line came back",
        repeat=Repeat.REPLAY_SAFE,
        counter=Counter.TRANSPORT,
        then=Unknown(),
    ),
    FailureClass.BODY_STALLED: Rule(
        happened=_AMBIGUOUS_BODY.format("stopped"),
        repeat=Repeat.REPLAY_SAFE,
        counter=Counter.TRANSPORT,
        then=Unknown(),
    ),
    FailureClass.BODY_CUT: Rule(
        happened=_AMBIGUOUS_BODY.format("was cut"),
        repeat=Repeat.REPLAY_SAFE,
        counter=Counter.TRANSPORT,
        then=Unknown(),
    ),
    FailureClass.BODY_INVALID: Rule(
        happened="whole body, but not the reply that was agreed",
        repeat=Repeat.REPLAY_SAFE,
        counter=Counter.TRANSPORT,
        then=Unknown(),
    ),
    FailureClass.TRANSIENT: Rule(
        happened="408, 425, 5xx",
        repeat=Repeat.TOOL_ALLOWS,
        counter=Counter.TRANSIENT,
        then=REPAIRABLE,
    ),
    FailureClass.RATE_LIMITED: Rule(
        happened="429", repeat=Repeat.ALWAYS, counter=Counter.RATE_LIMITED, then=REPAIRABLE
    ),
    FailureClass.IN_PROGRESS: Rule(
        happened="the same key is being worked on",
        repeat=Repeat.ALWAYS,
        counter=Counter.IN_PROGRESS,
        then=Unknown(),
    ),
    FailureClass.CREDITS_EXHAUSTED: Rule(
        happened="402 of the platform, or one that can't be read", then=HaltRun()
    ),
    FailureClass.PROVIDER_UNAVAILABLE: Rule(happened="402 of the provider's own account", then=REPAIRABLE),
    FailureClass.PROVIDER_EXHAUSTED: Rule(
        happened="the provider's quota is used up (error code `provider_exhausted`)", then=REPAIRABLE
    ),
    FailureClass.AUTH: Rule(happened="401, 403", then=REPAIRABLE),
    FailureClass.AUTH_SCOPE_CHANGED: Rule(happened="error code `auth_scope_changed`", then=Rekey()),
    FailureClass.BAD_REQUEST: Rule(happened="400, 413, 422", then=Bisect()),
    FailureClass.NOT_FOUND: Rule(happened="404", then=FINAL),
    FailureClass.REJECTED: Rule(happened="any other status, or a reply that says it failed", then=FINAL),
}


@dataclass(frozen=True, slots=True)
class Failures:
    """Failures of one request so far, by counter: how many, and when the first was."""

    seen: Mapping[Counter, tuple[int, float]] = field(default_factory=dict)

    def with_one(self, kind: FailureClass, now_ms: float) -> "Failures":
        counter = RULES[kind].counter
        count, first_ms = self.seen.get(counter, (0, now_ms))
        return Failures({**self.seen, counter: (count + 1, first_ms)})

    def count(self, kind: FailureClass) -> int:
        return self.seen.get(RULES[kind].counter, (0, 0.0))[0]

    def elapsed_ms(self, kind: FailureClass, now_ms: float) -> float:
        """Since the first failure of this kind's counter."""
        return now_ms - self.seen.get(RULES[kind].counter, (0, now_ms))[1]


def decide(
    failure: Failure,
    *,
    attempt: int,
    elapsed_ms: float,
    members: int,
    limits: Limits,
    transient_http_retry_safe: bool = False,
    replay_safe: bool = False,
    retries_left: bool = True,
) -> Action:
    """The action after the `attempt`-th failure of this counter (first = 1), `elapsed_ms` after its first.

    `replay_safe`: a verified fence or fixture mode makes a repeated send harmless. `retries_left`: in the run's budget.
    """
    rule = RULES[failure.failure_class]
    is_repeated = {
        Repeat.NEVER: False,
        Repeat.ALWAYS: True,
        Repeat.TOOL_ALLOWS: transient_http_retry_safe,
        Repeat.REPLAY_SAFE: replay_safe,
    }[rule.repeat]
    if is_repeated and retries_left:
        retry = Retry(
            after_ms=_wait_ms(failure, attempt, limits),
            same_invocation=rule.counter is Counter.IN_PROGRESS,
        )
        if _is_within(rule.counter, attempt, elapsed_ms + retry.after_ms, limits):
            return retry
    if isinstance(rule.then, Bisect) and members == 1:
        return FINAL
    return rule.then


def may_repeat_only_if_safe(kind: FailureClass) -> bool:
    """Whether it must be known if a repeat is harmless before `decide` is asked."""
    return RULES[kind].repeat is Repeat.REPLAY_SAFE


def table_rows(limits: Limits) -> list[tuple[str, str, str, str]]:
    """The table in words: class, what happened, whether it is sent again, what follows in the end."""
    return [
        (kind.value, rule.happened, _repeat_words(rule, limits), _end_words(rule.then))
        for kind, rule in RULES.items()
    ]


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


def _is_within(counter: Counter, attempt: int, until_ms: float, limits: Limits) -> bool:
    if counter is Counter.RATE_LIMITED:
        return until_ms <= limits.rate_limited_total_ms
    if counter is Counter.IN_PROGRESS:
        return until_ms <= limits.in_progress_total_ms
    return attempt < limits.transport_attempts


def _wait_ms(failure: Failure, attempt: int, limits: Limits) -> float:
    asked_ms = failure.retry_after_ms
    if asked_ms is None:
        return min(limits.retry_fallback_ms * attempt, limits.retry_wait_max_ms)
    # `Retry-After: 0` must not become a busy loop.
    return max(asked_ms, limits.retry_wait_min_ms)


def _repeat_words(rule: Rule, limits: Limits) -> str:
    if rule.repeat is Repeat.NEVER:
        return "no"
    bounds = {
        Counter.RATE_LIMITED: f"for {limits.rate_limited_total_ms / 60_000:g} min",
        Counter.IN_PROGRESS: f"for {limits.in_progress_total_ms / 60_000:g} min, same invocation attempt",
    }
    bound = bounds.get(rule.counter, f"{limits.transport_attempts} attempts in all")
    return bound if rule.repeat is Repeat.ALWAYS else f"{bound}, {rule.repeat.value}"


def _end_words(end: End) -> str:
    match end:
        case FailItem(terminal=True):
            return "fails, final for this input"
        case FailItem():
            return "fails, a later run may ask again"
        case Bisect():
            return "split to find the item; alone: fails, final for this input"
        case Unknown():
            return "unknown: not sent again by itself"
        case HaltRun():
            return "the run is halted"
        case Rekey():
            return "nothing stored; asked once more under the new scope's key"
