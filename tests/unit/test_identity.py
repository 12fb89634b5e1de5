"""Keys: equal calls are one call, different calls never share a key."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.model.canonical_json import canonical
from runtime.policy import identity


def keys(**changes: Any) -> identity.CallKeys:
    fields: dict[str, Any] = {
        "org_id": "o",
        "tool": "t",
        "input": {"a": 1, "b": [1.5, "x"]},
        "auth_scope": None,
        "action_version": "1",
        "response_revision": None,
    }
    return identity.call_keys(**(fields | changes))


def key(**changes: Any) -> str:
    return keys(**changes).receipt


def test_order_of_fields_does_not_matter() -> None:
    assert key() == key(input={"b": [1.5, "x"], "a": 1})


@pytest.mark.parametrize(
    "changes",
    [
        {"org_id": "p"},
        {"tool": "u"},
        {"input": {"a": 2, "b": [1.5, "x"]}},
        {"auth_scope": "s"},
        {"action_version": "2"},
        {"response_revision": "r"},
    ],
)
def test_every_part_counts(changes: dict[str, Any]) -> None:
    assert key(**changes) != key()


def test_64_bit_ids_stay_apart() -> None:
    """rfc8785 refuses integers above 2^53 - 1; ids of that size are ordinary inputs."""
    assert canonical(2**63) == b"9223372036854775808"
    assert key(input={"id": 9007199254740993}) != key(input={"id": 9007199254740992})


def test_the_provider_key_knows_no_revision() -> None:
    """A response read again in another form is the same purchase."""
    assert keys(response_revision="r").item == keys().item
    assert keys(action_version="2").item != keys().item
    assert keys(org_id="p").item != keys().item


def test_the_fast_text_is_the_exact_text() -> None:
    plain = {"b": "\u00e9\n\x7f", "a": None, "c": True}
    assert canonical(plain) == b'{"a":null,"b":"\xc3\xa9\\n\x7f","c":true}'
    assert canonical({"b": 1.0, "a": "x"}) == b'{"a":"x","b":1}'


def test_a_batch_key_depends_on_members_and_their_order() -> None:
    def batch(*items: str) -> str:
        return identity.batch_idempotency_key(operation="op", strategy="s", revision="1", item_keys=items)

    assert batch("a", "b") == batch("a", "b")
    assert len({batch("a", "b"), batch("b", "a"), batch("a"), batch("ab")}) == 4


@given(st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=8), max_size=6))
def test_canonical_is_independent_of_insertion_order(value: dict[str, Any]) -> None:
    turned = dict(reversed(list(value.items())))
    try:
        assert canonical(value) == canonical(turned)
    except (UnicodeEncodeError, TypeError):
        assert any("\ud800" <= c <= "\udfff" for text in [*value, *map(str, value.values())] for c in text)


@pytest.mark.parametrize(
    "changes",
    [{"org_id": "p"}, {"kind": "fetch"}, {"id": "y"}, {"place": ("row", "d", 2)}],
)
def test_every_part_counts_in_the_keys_of_steps_and_fetches(changes: dict[str, Any]) -> None:
    given: dict[str, Any] = {"kind": "step", "org_id": "o", "id": "x", "place": ("row", "d", 1)}
    own: dict[str, Any] = {"run_id": "r", "n": 0}
    shared: dict[str, Any] = {"namespace": "play", "semantic_key": "s"}
    assert identity.local_key(**(given | own)) != identity.local_key(**(given | own | changes))
    assert identity.shared_local_key(**(given | shared)) != identity.shared_local_key(
        **(given | shared | changes)
    )
