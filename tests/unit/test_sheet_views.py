"""Names of views and their columns are real where they can be, stable, and never taken twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.policy.sheet_views import IDENTIFIER_BYTES, OWN_COLUMNS, added_columns, stored_columns, view_name


def test_a_plain_name_is_kept() -> None:
    assert view_name("default", "airports", "my_table") == "sheet__default__airports__my_table"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b.c", "d"), ("a", "b-c", "d")),
        (("A", "b", "c"), ("a", "b", "c")),
        (("a__b", "c", "d"), ("a", "b__c", "d")),
        (("ü", "b", "c"), ("ö", "b", "c")),
        (("a", "b", "x" * 63), ("a", "b", "x" * 62 + "y")),
    ],
)
def test_names_that_look_alike_stay_apart(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    assert view_name(*one) != view_name(*other)
    assert max(len(view_name(*one).encode()), len(view_name(*other).encode())) <= IDENTIFIER_BYTES


def test_known_columns_keep_their_place_and_new_ones_come_after_them() -> None:
    first = added_columns([], ["name", "email", "Email"], most=10)
    assert first == [("name", "name"), ("email", "email"), ("Email", "Email")]
    assert added_columns(first, ["email", "phone", "name"], most=10) == [("phone", "phone")]
    assert added_columns(first, ["phone", "fax"], most=4) == [("phone", "phone")]


def test_what_is_stored_is_shown_once_in_order() -> None:
    assert stored_columns(["b", "a", "_in"], ["a", "c", "_scratch"]) == ["b", "a", "_in", "c"]


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=100), max_size=30))
def test_identifiers_are_unique_and_fit(names: list[str]) -> None:
    added = added_columns([], [*names, *OWN_COLUMNS], most=1_000)
    identifiers = [identifier for _, identifier in added]
    assert len({*identifiers, *OWN_COLUMNS}) == len(identifiers) + len(OWN_COLUMNS)
    assert all(0 < len(one.encode()) <= IDENTIFIER_BYTES for one in identifiers)
    assert {name for name, _ in added} == {*names, *OWN_COLUMNS}
