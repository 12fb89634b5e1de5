"""Row keys and digests depend on values alone."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import DatasetInputError
from runtime.model import json_value
from runtime.model.canonical_json import canonical
from runtime.model.dataset import OpenDataset
from runtime.policy.limits import Limits
from runtime.policy.rows_input import KeySpec, TakenRow, chained, take_row
from tests.property.seeding_input import cut_all, spec_of

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
ROWS = st.dictionaries(TEXT.filter(lambda name: not name.startswith("__")), VALUES, max_size=4)


def take(row: Any, key: KeySpec) -> TakenRow:
    return take_row(row, number=1, dataset="t", key=key, outputs=frozenset(), max_bytes=10**6)


@given(ROWS)
def test_rows_round_trip_and_order_of_columns_does_not_matter(row: dict[str, Any]) -> None:
    taken = take(row, KeySpec())
    assert json_value.loads(taken.input) == row
    turned = dict(reversed(list(row.items())))
    assert take(turned, KeySpec()).row_key == taken.row_key


@given(st.lists(TEXT | st.integers() | st.floats(allow_nan=False), min_size=2, max_size=2), st.data())
def test_explicit_keys_are_equal_only_for_equal_parts(parts: list[Any], data: st.DataObject) -> None:
    others = data.draw(st.lists(TEXT | st.integers(), min_size=2, max_size=2))

    def key(values: list[Any]) -> str | None:
        try:
            return take({"a": values[0], "b": values[1]}, KeySpec(columns=("a", "b"))).row_key
        except DatasetInputError:
            return None

    if key(parts) is not None and key(parts) == key(others):
        assert [_text(part) for part in parts] == [_text(part) for part in others]


def _text(part: Any) -> str:
    """Text without its edges; of a number its worth: 1.0 is 1, as everywhere in JSON."""
    return part.strip() if isinstance(part, str) else canonical(part).decode()


@given(st.lists(st.binary(max_size=5), max_size=8), st.integers(0, 8))
def test_digest_of_a_prefix_goes_on(rows: list[bytes], cut: int) -> None:
    whole = b""
    for row in rows:
        whole = chained(whole, row)
    part = b""
    for row in rows[:cut]:
        part = chained(part, row)
    for row in rows[cut:]:
        part = chained(part, row)
    assert part == whole


@given(st.lists(ROWS, max_size=12), st.integers(1, 5), st.integers(1, 5), st.integers(0, 3))
def test_pages_cover_the_input_once_wherever_seeding_was_cut(
    rows: list[dict[str, Any]], first_size: int, second_size: int, pages_before: int
) -> None:
    before = cut_all(spec_of(rows), Limits(slice_rows=first_size, slices_per_page=1))[:pages_before]
    opened = OpenDataset(
        dataset_id=1,
        pages_seeded=len(before),
        pages_total=None,
        next_position=before[-1].end if before else 0,
        rows_seeded=0,
        duplicates=0,
        input_digest=before[-1].digest if before else "",
    )
    after = cut_all(spec_of(rows), Limits(slice_rows=second_size, slices_per_page=1), opened)
    edges = [(page.first, page.end) for page in before + after]
    assert [edge for first, end in edges for edge in range(first, end)] == list(range(len(rows)))
    assert all(page.digest for page in after)
