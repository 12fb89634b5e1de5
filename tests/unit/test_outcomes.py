"""Failures survive the journal: the same type and words live and replayed."""

import json

import pytest

from runtime import errors
from runtime.engine.outcomes import error_of, error_payload, is_fatal, run_error
from runtime.errors import OperationFailedError, PlaylaneError, ToolCallError, ToolRejectedError


def round_trip(error: BaseException) -> PlaylaneError:
    return error_of(json.loads(json.dumps(error_payload(error))))


PLAIN = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type)
    and issubclass(kind, PlaylaneError)
    and kind.__init__ in (PlaylaneError.__init__, ToolCallError.__init__)
]


@pytest.mark.parametrize("kind", PLAIN)
def test_every_plain_error_of_the_tree_comes_back(kind: type[PlaylaneError]) -> None:
    back = round_trip(kind("what happened"))
    assert type(back) is kind
    assert str(back) == "what happened"


def test_details_of_a_call_come_back() -> None:
    error = ToolRejectedError("no", tool="t", code="gone", retryable=True, details={"a": [1]})
    back = round_trip(error)
    assert isinstance(back, ToolCallError)
    assert (back.tool, back.code, back.retryable, back.details) == ("t", "gone", True, {"a": [1]})


def test_an_error_with_its_own_arguments_comes_back_by_its_code() -> None:
    payload = {
        "type": "ExecuteFailedError",
        "code": "rate",
        "message": "later",
        "tool": "t",
        "retryable": True,
    }
    back = error_of(payload)
    assert isinstance(back, errors.ToolUnavailableError)
    assert str(back) == "later"


def test_other_errors_become_operation_failed_with_their_type() -> None:
    back = round_trip(ZeroDivisionError("by zero"))
    assert isinstance(back, OperationFailedError)
    assert back.payload["type"] == "ZeroDivisionError"


def test_payloads_by_code_alone() -> None:
    assert is_fatal({"code": "all_rows_failed", "message": "all"})
    assert not is_fatal({"code": "tool_rejected", "message": "no"})
    assert not is_fatal({"code": "bad_csv", "message": "no"})


def test_payloads_are_storable_and_short() -> None:
    payload = error_payload(ValueError("a\x00\ud800" + "x" * 10_000))
    assert len(payload["message"]) < 5_000
    json.dumps(payload).encode()
    assert "ValueError: one" in error_payload(ExceptionGroup("many", [ValueError("one")]))["message"]


def test_the_line_in_the_play() -> None:
    try:
        json.loads("{")
    except ValueError as error:
        assert run_error(error, __file__)["where"].startswith(f"{__file__}:")
        assert "where" not in run_error(error, "elsewhere.py")
