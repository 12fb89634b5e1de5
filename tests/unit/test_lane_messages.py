"""Posts and batch records as messages: inputs come back exactly, other versions are refused."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import BadInputError
from runtime.model import batch_record, post_message
from runtime.model.call import Accepts, Post
from runtime.model.lease import BatchRecord
from runtime.model.query_page import QueryPage
from tests.lane_stage import call, calls

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=10,
)


def _post(given_input: Any) -> Post:
    from dataclasses import replace

    return Post(post_id="p", lane="l", calls=(replace(call("a"), input=given_input), call("b")))


@given(values)
def test_a_post_survives_any_json_serializer(value: Any) -> None:
    post = _post(value)
    travelled = json.loads(json.dumps(post_message.to_message(post)))
    assert post_message.from_message(travelled) == post


def test_what_looks_like_a_serializer_s_envelope_stays_plain_data() -> None:
    from kombu.utils import json as kombu_json

    post = _post({"__type__": "datetime", "__value__": "2026-01-01T00:00:00", "big": 2**70})
    travelled = kombu_json.loads(kombu_json.dumps(post_message.to_message(post)))
    assert post_message.from_message(travelled) == post


@pytest.mark.parametrize(
    "message",
    [
        None,
        [],
        {},
        {"v": 2},
        {"v": 1},
        {"v": 1, "post_id": "p", "lane": "l", "calls": "["},
        {"v": 1, "calls": "[[1]]"},
    ],
)
def test_what_is_not_a_post_is_refused(message: Any) -> None:
    with pytest.raises(BadInputError):
        post_message.from_message(message)


def test_a_record_keeps_members_verbatim_and_refuses_other_versions() -> None:
    record = BatchRecord(
        batch_id="b",
        session_id="s1",
        lane="l",
        operation="op",
        strategy="keyed",
        revision="1",
        members=tuple(
            {"key": c.key, "input": {"n": 2**70, "f": 1e16, "t": "\u00e9\ud7ff"}} for c in calls(2)
        ),
        fences=(1, 2),
    )
    text = batch_record.to_text(record)
    assert batch_record.from_text(text, session_id="s1", fences=(1, 2)) == record
    with pytest.raises(BadInputError):
        batch_record.from_text(text.replace(b'"v":1', b'"v":9'), session_id="s1", fences=(1, 2))


def test_a_call_s_wishes_travel_with_it() -> None:
    from dataclasses import replace

    wishes = replace(
        call("a"),
        accepts=Accepts(failed_not_before_ms=5),
        read_keys=("k1", "k2"),
        shared_key="s",
        auth_scope="scope",
        timeout_ms=1.5,
        accounts=("root", "r"),
        page=QueryPage(limit=50, offset=25, page_size=25, total_rows=90),
        node=("find", "email", "companies"),
    )
    post = Post(post_id="p", lane="l", calls=(wishes, call("b")))
    assert post_message.from_message(json.loads(json.dumps(post_message.to_message(post)))) == post


def test_a_record_leases_the_shared_keys_of_its_forced_members_too() -> None:
    members = ({"key": "a", "shared_key": "s"}, {"key": "b"}, {"key": "c", "shared_key": "t"})
    record = BatchRecord(
        batch_id="b",
        session_id="s1",
        lane="l",
        operation="op",
        strategy="keyed",
        revision="1",
        members=members,
        fences=(1, 2, 3, 4, 5),
    )
    assert record.keys == ("a", "b", "c", "s", "t")
    assert record.per_member(record.fences) == [(1, 4), (2, None), (3, 5)]
