"""A log line is made storable and short; it never fails a play."""

from typing import Any

import pytest

from runtime.context.log_line import log_fields, log_text
from runtime.model.json_value import check
from runtime.policy.limits import Limits

SHORT = Limits(log_chars=10, fields_per_log=3)


@pytest.mark.parametrize("text", ["x" * 50, "a\x00b", "half \ud800", 3, None])
def test_text(text: Any) -> None:
    line = log_text(text, SHORT)
    check(line)
    assert len(line) <= 11


@pytest.mark.parametrize(
    "value", [1, True, None, 2.5, float("nan"), object(), {1: 2}, ["x"] * 50, "x" * 50, b"x"]
)
def test_fields(value: Any) -> None:
    kept = log_fields({"field": value}, SHORT)
    check(kept)
    assert len(str(kept["field"])) <= 11


def test_fields_are_counted() -> None:
    assert list(log_fields({"a": 1, "b": 2, "c": 3, "d": 4}, SHORT)) == ["a", "b", "c"]
