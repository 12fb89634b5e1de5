"""FAULTS B18: hostile values round-trip exactly or are refused with their path."""

import datetime
import decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import JsonValueError
from runtime.model import json_value


@pytest.mark.parametrize(
    "text",
    [
        b"9007199254740993",
        b"1180591620717411303424",
        b"-0.0",
        b'{"__type__":"datetime","value":"x"}',
        b'"caf\xc3\xa9"',
    ],
)
def test_exact_round_trip(text: bytes) -> None:
    assert json_value.dumps(json_value.loads(text)) == text


@pytest.mark.parametrize(
    "text", [b"NaN", b"Infinity", b"[1, NaN, 1234567890123456789012]", b"", b"{", b"[" * 100_000]
)
def test_not_json_is_refused(text: bytes) -> None:
    with pytest.raises(JsonValueError):
        json_value.loads(text)


def test_a_number_beyond_double_is_refused() -> None:
    with pytest.raises(JsonValueError, match="finite"):
        json_value.check(json_value.loads(b'{"a":[1e400,1234567890123456789012]}'))


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, float("nan")]}, "$.a[1]"),
        ({"a": {"b": float("inf")}}, "$.a.b"),
        ({"a": "x\x00y"}, "$.a"),
        ({"a": "\ud800"}, "$.a"),
        ({1: "x"}, "$"),
        ({"when": datetime.datetime(2026, 1, 1)}, "$.when"),
        ({"d": decimal.Decimal("1.1")}, "$.d"),
        ([b"bytes"], "$[0]"),
        ([{1, 2}], "$[0]"),
    ],
)
def test_a_bad_value_names_its_path(value: Any, path: str) -> None:
    with pytest.raises(JsonValueError) as raised:
        json_value.check(value)
    assert raised.value.path == path


def test_a_coroutine_is_never_a_value() -> None:
    async def forgotten() -> int:
        return 1

    coroutine = forgotten()
    with pytest.raises(JsonValueError, match="await"):
        json_value.check({"x": coroutine})
    coroutine.close()


def test_depth_is_bounded() -> None:
    value: Any = 1.0
    for _ in range(2_000):
        value = [value]
    with pytest.raises(JsonValueError, match="deep"):
        json_value.check(value)
    with pytest.raises(JsonValueError):
        json_value.dumps(value)


def test_depth_up_to_the_limit_is_fine_in_dicts_too() -> None:
    value: Any = 1.0
    for _ in range(500):
        value = {"a": value}
    assert json_value.loads(json_value.dumps(json_value.check(value))) == value


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(JSON)
def test_what_passes_the_check_round_trips(value: Any) -> None:
    try:
        json_value.check(value)
    except JsonValueError:
        return
    assert json_value.loads(json_value.dumps(value)) == value
