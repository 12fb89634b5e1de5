"""Paths into results."""

from typing import Any

import pytest

from runtime.model.extracting import ResultParts, first_value, list_at, list_name, rows_at, values_at

PARTS = ResultParts(
    data={
        "a": {"b": [{"c": 1}, {"c": None}, {"d": 2}]},
        "data": {"own": 1},
        "zero": 0,
        "no": False,
        "odd.key": 5,
    },
    raw={"data": {}, "page": 3},
    meta={"provider": "p"},
)


@pytest.mark.parametrize(
    ("path", "values"),
    [
        ("a.b[0].c", [1]),
        ("a.b.0.c", [1]),
        ("$.a.b[*].c", [1, None]),
        ("a.b[].c", [1, None]),
        ("a.b.*.d", [2]),
        ("a.b[9].c", []),
        ("a.b.c", []),
        ("a.b[-1].c", []),
        ("toolResponse.raw.a.b[0].c", [1]),
        ("toolOutput.raw.zero", [0]),
        ("result.data.zero", [0]),
        ("data.zero", [0]),
        ("data.own", [1]),  # the data's own name goes first
        ("raw.page", [3]),
        ("toolResponse.rawV2.page", [3]),
        ("meta.provider", ["p"]),
        ("toolResponse.meta.provider", ["p"]),
        ("['odd.key']", [5]),
        ("nothing.here", []),
        ("zero.deeper", []),
    ],
)
def test_values_at_a_path(path: str, values: list[Any]) -> None:
    found = list(values_at(PARTS, path))
    assert found == values


@pytest.mark.parametrize(
    ("paths", "value"),
    [
        (["x", "a.b[1].c", "a.b[2].d"], 2),
        (["zero"], 0),
        (["no"], False),
        (["x", "y"], None),
        ([], None),
    ],
)
def test_the_first_path_that_says_something(paths: list[str], value: Any) -> None:
    assert first_value(PARTS, paths) == value


@pytest.mark.parametrize("blank", [None, "", "  ", [], {}])
def test_blank_values_say_nothing(blank: Any) -> None:
    assert first_value(ResultParts(data={"a": blank, "b": "x"}), ["a", "b"]) == "x"


def test_lists_are_named_by_their_last_name() -> None:
    names = [
        list_name(path) for path in ("toolResponse.raw.people", "data.pages[0].leads", "items[*]", "[0]")
    ]
    assert names == ["people", "leads", "items", "[0]"]


def test_a_list_that_is_data_itself() -> None:
    parts = ResultParts(data=[{"a": 1}, 2])
    assert rows_at(parts, "data") == [{"a": 1}, {"value": 2}]
    assert list_at(parts, "toolResponse.raw", ["a", "z"]) == [{"a": 1}]
