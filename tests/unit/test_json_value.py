"""B18: hostile values round-trip exactly or are refused with their path."""

import datetime
import decimal
import re
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.context.tool_result import tool_result
from runtime.engine.run_result import result_json
from runtime.errors import JsonValueError
from runtime.model import json_value
from runtime.model.kept_value import plain
from runtime.policy.limits import Limits


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


def shared(levels: int, leaf: Any) -> Any:
    value = leaf
    for _ in range(levels):
        value = [value, value]
    return value


def test_what_stands_in_many_places_is_walked_once_and_counted_in_each() -> None:
    few = shared(10, {"a": [1.5, "x"]})
    assert json_value.check(few) is few
    for levels in (30, 400):
        with pytest.raises(JsonValueError, match=r"more than 16,777,216 values.*keep it once") as refused:
            json_value.check({"a": shared(levels, [1, "x"])})
        assert refused.value.path.startswith("$.a[0]")
    assert plain(shared(400, [1]))[1] == {}
    with pytest.raises(JsonValueError, match="more than 16,777,216 values"):
        result_json({"a": shared(30, 1)}, Limits())
    with pytest.raises(JsonValueError, match="more than 100,000 tool results"):
        plain(shared(30, tool_result(b"1", tool="t")))


def test_a_bad_part_is_named_where_it_stands_first() -> None:
    with pytest.raises(JsonValueError) as refused:
        json_value.check({"ok": shared(2, ["x"] * 20), "a": shared(30, {"b": [float("nan")]})})
    assert refused.value.path == "$.a" + "[0]" * 30 + ".b[0]"


@pytest.mark.parametrize("width", [1, 40])
def test_what_fits_in_one_place_may_be_too_deep_in_another(width: int) -> None:
    part = {"x": ["y"] * width}
    fits = {"shallow": part, "deep": [[part]]}
    assert json_value.check(fits, max_depth=5) is fits
    with pytest.raises(JsonValueError, match="nested too deeply") as refused:
        json_value.check({"shallow": part, "deep": [[[0, part]]]}, max_depth=5)
    assert refused.value.path == "$.deep[0][0][1].x"


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


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        (b'{"a":{"k":1,"k":1}}', "$.a", "the name 'k' stands twice"),
        (b'[{"k":1,"j":2,"k":3}]', "$[0]", "stands twice"),
        (b'{"a":[NaN]}', "$.a[0]", "nan is not a finite number"),
        (b'{"a":-Infinity}', "$.a", "finite"),
        (b'{"a":1e400}', "$.a", "finite"),
        (b'{"a":' + b"9" * 5_000 + b"}", "$.a", "a number of 5,000 digits"),
        (b'{"a":"\\ud800"}', "$.a", "surrogate"),
        (b'{"a\\u0000":1}', "$", "NUL"),
    ],
)
def test_what_others_wrote_is_refused_where_it_stands(text: bytes, path: str, words: str) -> None:
    value = json_value.loads_foreign(text)
    with pytest.raises(JsonValueError, match=words) as refused:
        json_value.check(value)
    assert refused.value.path == path


@given(JSON)
def test_what_others_wrote_is_the_same_value_where_it_can_be_kept(value: Any) -> None:
    try:
        text = json_value.dumps(json_value.check(value))
    except JsonValueError:
        return
    assert json_value.same(json_value.loads_foreign(text), json_value.loads(text))


@pytest.mark.parametrize("digits", [19, 400, 4_000])
def test_long_integers_are_exact(digits: int) -> None:
    value = [10**digits - 1, -(10**digits - 1)]
    assert json_value.loads(json_value.dumps(json_value.check(value))) == value


@pytest.mark.parametrize("value", [10**4_000, {"a": [-(10**4_000)]}])
def test_endless_integers_are_refused(value: Any) -> None:
    with pytest.raises(JsonValueError, match="more than 4,000 digits"):
        json_value.check(value)


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": 1, "b": {"c": ["x" * 50, "y" * 200]}}, "$.b.c[1]"),
        (["x" * 50] * 10, "$"),
        ("x" * 50, "$"),
        ({}, "$"),
    ],
)
def test_the_heaviest_part_is_named(value: Any, path: str) -> None:
    found, size = json_value.heaviest(value, "$")
    assert found == path
    assert 0 < size <= len(json_value.dumps(value))


def test_a_long_path_is_cut_in_the_middle() -> None:
    error = JsonValueError("$" + "[0]" * 500, "nested too deeply")
    assert len(str(error)) < 250
    assert str(error).endswith("[0]: nested too deeply")


async def _asks() -> None: ...


async def _walks() -> Any:
    yield 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_asks, "a coroutine was returned and never awaited: add `await`"),
        (lambda: (n for n in range(3)), "generator is not a JSON value: write list(value)"),
        (_walks, "async_generator is not a JSON value: write [one async for one in value]"),
    ],
)
def test_what_is_refused_says_what_to_write_instead(make: Callable[[], Any], words: str) -> None:
    value = make()
    with pytest.raises(JsonValueError, match=re.escape(words)):
        json_value.check([value])
    if hasattr(value, "close"):
        value.close()


def test_a_text_takes_as_much_memory_as_it_is_long() -> None:
    """orjson leaves a short text in a buffer of 4 KiB: two thousand waiting rows took 16 MiB."""
    values = [{"number": n, "text": "x" * 30} for n in range(1_000)]
    tracemalloc.start()
    try:
        texts = [json_value.dumps(value) for value in values]
        taken, _peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken < 4 * sum(map(len, texts))
