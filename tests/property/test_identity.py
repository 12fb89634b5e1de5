"""What identifies a row: the same in every process and run, for equal rows, and never two rows as one."""

import os
import subprocess
import sys
from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from runtime.model import json_value
from runtime.policy.rows_input import KeySpec, take_row
from tests.property.test_rows_input import ROWS, TEXT, VALUES

OUTPUTS = frozenset({"domain", "email"})
OUTPUT_ROWS = st.dictionaries(st.sampled_from(sorted(OUTPUTS)), VALUES, max_size=2)
WHOLE = KeySpec()
KEYED = KeySpec(columns=("id",))
IDS = TEXT.filter(lambda text: bool(text.strip())) | st.integers() | st.floats(-1e6, 1e6)

_KEYS = """
import sys
from runtime.model import json_value
from runtime.policy.rows_input import KeySpec, take_row
rows = json_value.loads(sys.stdin.buffer.read())
facts = {"number": 1, "dataset": "d", "key": KeySpec(), "outputs": frozenset(), "max_bytes": 10**6}
keys = [take_row(row, **facts).row_key for row in rows]
sys.stdout.buffer.write(json_value.dumps(keys))
"""


def key_of(row: Any, key: KeySpec = WHOLE, outputs: frozenset[str] = OUTPUTS) -> str:
    return take_row(row, number=1, dataset="d", key=key, outputs=outputs, max_bytes=10**6).row_key


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ROWS, min_size=20, max_size=60), st.integers(1, 1_000))
def test_a_key_is_the_same_in_every_process(rows: list[dict[str, Any]], seed: int) -> None:
    there = subprocess.run(
        [sys.executable, "-c", _KEYS],
        input=json_value.dumps(rows),
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": str(seed)},
    )
    assert json_value.loads(there.stdout) == [key_of(row) for row in rows]


@given(ROWS, st.randoms(use_true_random=False))
def test_equal_rows_have_equal_keys(row: dict[str, Any], random: Any) -> None:
    names = list(row)
    random.shuffle(names)
    turned = {name: row[name] for name in names}
    assert key_of(turned) == key_of(row)
    stored = json_value.loads(json_value.dumps(row))  # as another run reads it
    assert key_of(stored) == key_of(row)
    assert key_of({**row, "__playlane_row": 1, "__deepline_x": 2}) == key_of(row)


@given(ROWS, OUTPUT_ROWS, OUTPUT_ROWS)
def test_rows_that_differ_only_in_a_column_named_as_an_output_stay_two(
    row: dict[str, Any], one: dict[str, Any], other: dict[str, Any]
) -> None:
    assume(json_value.dumps(one) != json_value.dumps(other) and one != other)
    assert key_of({**row, **one}) != key_of({**row, **other})


@given(ROWS, IDS, OUTPUT_ROWS)
def test_an_explicit_key_sees_input_columns_alone(row: dict[str, Any], id: Any, more: dict[str, Any]) -> None:
    assert key_of({**row, "id": id, **more}, KEYED) == key_of({"id": id}, KEYED)
    by_function = KeySpec(function=lambda given: given["id"])
    assert key_of({**row, "id": id, **more}, by_function) == key_of({"id": id}, KEYED)


@given(IDS, IDS)
def test_equal_explicit_values_are_one_key_and_others_two(one: Any, other: Any) -> None:
    keys = key_of({"id": one}, KEYED), key_of({"id": other}, KEYED)
    if one == other:
        assert keys[0] == keys[1]
    elif type(one) is type(other) is str:
        assert (keys[0] == keys[1]) == (one.strip() == other.strip())


@given(st.lists(IDS, min_size=2, max_size=2), st.lists(IDS, min_size=2, max_size=2))
def test_parts_of_a_key_do_not_run_together(one: list[Any], other: list[Any]) -> None:
    both = KeySpec(columns=("a", "b"))
    keys = [key_of(dict(zip("ab", parts, strict=True)), both) for parts in (one, other)]
    alike = [key_of({"id": part}, KEYED) for part in one] == [key_of({"id": part}, KEYED) for part in other]
    assert (keys[0] == keys[1]) == alike
