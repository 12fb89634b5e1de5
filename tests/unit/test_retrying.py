"""One stated action per failure class."""

from pathlib import Path
from typing import Any

import pytest

from runtime.model.failure import NEXT_STEP, Failure, FailureClass
from runtime.policy.limits import DEFAULT_LIMITS
from runtime.policy.retrying import (
    RULES,
    Action,
    Bisect,
    FailItem,
    Failures,
    HaltRun,
    Rekey,
    Retry,
    Unknown,
    control_delay_ms,
    deadline_ms,
    decide,
    table_rows,
)

C = FailureClass
REPAIRABLE, FINAL = FailItem(terminal=False), FailItem(terminal=True)


def act(kind: FailureClass, *, retry_after_ms: float | None = None, **known: Any) -> Action:
    failure = Failure(
        failure_class=kind, operation="op", message="m", code="c", retry_after_ms=retry_after_ms
    )
    given: dict[str, Any] = {"attempt": 1, "elapsed_ms": 0, "members": 10, "limits": DEFAULT_LIMITS}
    return decide(failure, **(given | known))


@pytest.mark.parametrize(
    ("kind", "first", "last"),
    [
        (C.TRANSPORT_BEFORE_DISPATCH, Retry(after_ms=1_000), REPAIRABLE),
        (C.GATEWAY_502, Retry(after_ms=1_000), REPAIRABLE),
        (C.AMBIGUOUS, Unknown(), Unknown()),
        (C.BODY_STALLED, Unknown(), Unknown()),
        (C.BODY_CUT, Unknown(), Unknown()),
        (C.BODY_INVALID, Unknown(), Unknown()),
        (C.TRANSIENT, REPAIRABLE, REPAIRABLE),
        (C.RATE_LIMITED, Retry(after_ms=1_000), REPAIRABLE),
        (C.IN_PROGRESS, Retry(after_ms=1_000, same_invocation=True), Unknown()),
        (C.CREDITS_EXHAUSTED, HaltRun(), HaltRun()),
        (C.PROVIDER_UNAVAILABLE, REPAIRABLE, REPAIRABLE),
        (C.AUTH, REPAIRABLE, REPAIRABLE),
        (C.AUTH_SCOPE_CHANGED, Rekey(), Rekey()),
        (C.BAD_REQUEST, Bisect(), Bisect()),
        (C.NOT_FOUND, FINAL, FINAL),
        (C.REJECTED, FINAL, FINAL),
    ],
)
def test_actions(kind: FailureClass, first: Action, last: Action) -> None:
    assert act(kind) == first
    assert act(kind, attempt=10_000, elapsed_ms=10**9) == last


def test_every_class_has_an_action_and_a_next_step() -> None:
    assert set(NEXT_STEP) == set(FailureClass) == set(RULES)
    assert all(act(kind) is not None for kind in FailureClass)


def test_a_single_bad_request_is_final() -> None:
    assert act(C.BAD_REQUEST, members=1) == FINAL


@pytest.mark.parametrize("kind", [C.AMBIGUOUS, C.BODY_STALLED, C.BODY_CUT, C.BODY_INVALID])
def test_a_fence_or_a_fixture_makes_a_repeat_safe(kind: FailureClass) -> None:
    waits = [act(kind, replay_safe=True, attempt=n) for n in (1, 2, 3)]
    assert waits == [Retry(after_ms=1_000), Retry(after_ms=2_000), Unknown()]


def test_a_transient_failure_is_repeated_only_where_the_tool_allows_it() -> None:
    waits = [act(C.TRANSIENT, transient_http_retry_safe=True, attempt=n) for n in (1, 2, 3)]
    assert waits == [Retry(after_ms=1_000), Retry(after_ms=2_000), REPAIRABLE]


def test_a_rate_limit_is_bounded_by_time_and_not_by_attempts() -> None:
    assert act(C.RATE_LIMITED, attempt=500, retry_after_ms=2_000) == Retry(after_ms=2_000)
    total_ms = DEFAULT_LIMITS.rate_limited_total_ms
    assert act(C.RATE_LIMITED, elapsed_ms=total_ms - 1_999, retry_after_ms=2_000) == REPAIRABLE
    assert act(C.RATE_LIMITED, elapsed_ms=total_ms - 2_000, retry_after_ms=2_000) == Retry(after_ms=2_000)


def test_retry_now_is_no_busy_loop() -> None:
    assert act(C.RATE_LIMITED, retry_after_ms=0) == Retry(after_ms=DEFAULT_LIMITS.retry_wait_min_ms)


def test_deadlines() -> None:
    def of(tool: str, asked: float | None = None, declared: float | None = None) -> float:
        return deadline_ms(tool, asked_ms=asked, declared_ms=declared, limits=DEFAULT_LIMITS)

    assert of("find_domain") == 930_000
    assert of(" AI_Inference ") == 900_000
    assert of("ai_inference", declared=5) == 5
    assert of("find_domain", asked=7, declared=5) == 7
    assert of("find_domain", asked=0, declared=-1) == 930_000


def test_control_waits() -> None:
    assert [control_delay_ms(n, DEFAULT_LIMITS) for n in (1, 2, 3)] == [100, 250, None]


def test_each_counter_has_a_bound_of_its_own() -> None:
    failures = Failures()
    for at_ms, kind in enumerate([C.RATE_LIMITED, C.RATE_LIMITED, C.AMBIGUOUS, C.GATEWAY_502, C.TRANSIENT]):
        failures = failures.with_one(kind, float(at_ms))
    counts = [failures.count(kind) for kind in (C.RATE_LIMITED, C.AMBIGUOUS, C.TRANSIENT, C.IN_PROGRESS)]
    assert counts == [2, 2, 1, 0], "what the transport failed in is one counter"
    assert failures.elapsed_ms(C.RATE_LIMITED, 100.0) == 100.0
    assert failures.elapsed_ms(C.TRANSIENT, 100.0) == 96.0
    assert failures.elapsed_ms(C.IN_PROGRESS, 100.0) == 0.0


def test_a_message_names_tool_attempt_status_and_request() -> None:
    failure = Failure(
        failure_class=C.TRANSIENT,
        operation="op",
        message="op answered HTTP 503",
        code="c",
        status=503,
        tool="find",
        attempt=3,
        request_id="pl-1",
    )
    said = failure.describe()
    assert said.startswith(
        "op answered HTTP 503 (tool find, attempt 3, status 503, request pl-1; transient: "
    )


def test_the_readme_holds_the_same_table() -> None:
    readme = Path(__file__).parents[2] / "README.md"
    _, _, section = readme.read_text().partition("\n## When calls fail\n")
    section = section.partition("\n## ")[0]
    written = [
        tuple(cell.strip() for cell in line.strip("|").split("|"))
        for line in section.splitlines()
        if line.startswith("| `")
    ]
    assert written == [(f"`{kind}`", *words) for kind, *words in table_rows(DEFAULT_LIMITS)]
