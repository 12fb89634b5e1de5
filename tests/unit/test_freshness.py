"""Which receipt answers which call: refresh options, ages, failures, and whom an answer serves."""

from dataclasses import replace
from typing import Any

import pytest

from runtime.errors import PlayDefinitionError
from runtime.model.call import ANY_AGE, Accepts, Answer, AnswerState
from runtime.model.call_options import CallOptions, checked
from runtime.model.receipt import Receipt, ReceiptState, replaces
from runtime.policy import freshness
from runtime.policy.answering import answer_of, serves
from runtime.policy.freshness import Refresh
from tests.lane_stage import call

EPOCH = 1_000_000


def receipt(
    state: ReceiptState = ReceiptState.COMPLETED, run_id: str = "other", at: int = 0, **more: Any
) -> Receipt:
    values: dict[str, Any] = {"fence": 1} | more
    return Receipt(key="k", org_id="o", tool="t", run_id=run_id, state=state, produced_ms=at, **values)


def answers(stored: Receipt, stale_after_s: float | None = None, **options: bool) -> bool:
    wanted = freshness.accepts(Refresh.of(options, EPOCH), stale_after_s)
    return freshness.answers(stored, run_id="me", accepts=wanted)


def test_by_default_a_receipt_of_any_age_answers() -> None:
    assert freshness.accepts(Refresh.of({}, EPOCH), None) is ANY_AGE
    assert answers(receipt(at=0))


@pytest.mark.parametrize(("stale_after_s", "oldest"), [(0, EPOCH), (1.5, EPOCH - 1_500), (1e9, 0)])
def test_ages_are_seen_from_the_run_s_beginning(stale_after_s: float, oldest: int) -> None:
    assert answers(receipt(at=oldest), stale_after_s)
    assert oldest == 0 or not answers(receipt(at=oldest - 1), stale_after_s)


def test_what_the_run_produced_itself_answers_however_old_it_seems() -> None:
    for state in (ReceiptState.COMPLETED, ReceiptState.FAILED, ReceiptState.UNKNOWN):
        assert answers(receipt(state, run_id="me", at=0), 0, refresh_tools=True)


def test_refreshed_tools_ask_for_results_of_the_run_s_time() -> None:
    assert not answers(receipt(at=EPOCH - 1), refresh_tools=True)
    assert answers(receipt(at=EPOCH), refresh_tools=True), "another run refreshed it meanwhile"
    assert not answers(receipt(at=EPOCH - 1), 3_600, refresh_tools=True), "the stricter wish counts"


def test_refreshed_failures_leave_results_alone() -> None:
    failed = receipt(ReceiptState.FAILED, at=EPOCH - 1, terminal=True)
    assert answers(failed) and not answers(failed, refresh_failed=True)
    assert not answers(failed, refresh_tools=True) and not answers(failed, 0)
    assert answers(receipt(at=0), refresh_failed=True)
    assert answers(receipt(at=0), refresh_steps=True)


def test_only_final_failures_are_shared() -> None:
    assert not answers(receipt(ReceiptState.FAILED, terminal=False))
    assert not answers(receipt(ReceiptState.UNKNOWN))
    assert answers(receipt(ReceiptState.UNKNOWN, terminal=True)), "of a fenced tool: only force asks again"
    assert not answers(receipt(ReceiptState.DISPATCHED, run_id="me"))


def test_a_receipt_of_unknown_age_is_never_fresh_enough() -> None:
    unknown_age = Receipt(key="k", org_id="o", tool="t", run_id="x", state=ReceiptState.COMPLETED, fence=1)
    assert answers(unknown_age) and not answers(unknown_age, 1e6)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stale_after_seconds", -1),
        ("stale_after_seconds", -0.5),
        ("stale_after_seconds", float("nan")),
        ("stale_after_seconds", float("inf")),
        ("stale_after_seconds", True),
        ("stale_after_seconds", "60"),
        ("timeout_ms", 0),
        ("timeout_ms", -3),
        ("receipt_wait_ms", 0),
        ("max_wait_ms", float("inf")),
        ("force", 1),
    ],
)
def test_an_option_without_sense_is_named(field: str, value: Any) -> None:
    with pytest.raises(PlayDefinitionError, match=field):
        checked(CallOptions(**{field: value}), "here")


def test_options_that_make_sense_pass_and_only_what_decides_the_result_is_described() -> None:
    given = CallOptions(force=True, stale_after_seconds=0, receipt_wait_ms=1, max_wait_ms=2.5, timeout_ms=3)
    assert checked(given, "here") is given
    assert given.described() == {"force": True, "stale_after_seconds": 0}
    assert CallOptions(max_wait_ms=9, timeout_ms=9).described() == {}


def test_what_was_made_just_now_serves_everybody() -> None:
    strict = Accepts(not_before_ms=EPOCH, failed_not_before_ms=EPOCH)
    asked = call("a", run_id="me")
    live = answer_of(receipt(), cached=False)
    assert serves(live, asked) and serves(live, replace(asked, accepts=strict))
    old = answer_of(receipt(at=5), cached=True)
    assert serves(old, asked) and not serves(old, replace(asked, accepts=strict))


def test_another_run_s_failure_serves_only_if_it_is_final() -> None:
    asked = call("a", run_id="me")
    for state in (ReceiptState.FAILED, ReceiptState.UNKNOWN):
        assert not serves(answer_of(receipt(state), cached=False), asked)
        assert serves(answer_of(receipt(state, terminal=True), cached=False), asked)
        assert serves(answer_of(receipt(state, run_id="me"), cached=False), asked)
    assert serves(Answer(key="k", state=AnswerState.FAILED), asked), "refused before it was anybody's"


def test_an_answer_by_an_older_version_carries_the_key_that_was_asked() -> None:
    assert answer_of(receipt(), cached=True, key="asked").key == "asked"


def test_a_completed_receipt_gives_way_to_a_newer_refresh_alone() -> None:
    old = receipt(fence=5)
    assert replaces(old, None)
    assert not replaces(receipt(fence=9), old)
    assert replaces(receipt(fence=9, refreshes=True), old)
    assert not replaces(receipt(fence=5, refreshes=True), old), "the same generation: the first stays"
    assert not replaces(receipt(ReceiptState.FAILED, fence=9, refreshes=True), old)
    assert replaces(receipt(fence=5), receipt(ReceiptState.FAILED, fence=5))
    assert not replaces(receipt(fence=4), receipt(ReceiptState.FAILED, fence=5))
