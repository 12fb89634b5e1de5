"""Any JSON: a result that was stored anywhere is the one that was live."""

from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from runtime.context.kept_cells import alive
from runtime.context.tool_result import journal_json, journal_result, tool_result
from runtime.model import answer_message, json_value
from runtime.model.call import Answer, AnswerState
from runtime.model.kept_value import plain
from runtime.model.tool_output import ResponseEnvelope, data_text, envelope_of, second_line

TEXTS = st.text(alphabet=st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), max_size=8)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**62), 2**62)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=3)
ENVELOPES = st.builds(
    ResponseEnvelope,
    status=st.sampled_from(["completed", "no_result", "partial"]),
    job_id=st.none() | st.just("job"),
    is_raw=st.booleans(),
    rest=OBJECTS,
    meta=OBJECTS,
)


def text_of(data: Any, envelope: ResponseEnvelope) -> bytes:
    return json_value.dumps(data) + second_line(envelope)


def as_jsonb(value: Any) -> Any:
    return orjson.loads(orjson.dumps(value, option=orjson.OPT_SORT_KEYS))


@given(VALUES, ENVELOPES)
def test_both_lines_are_told_apart(data: Any, envelope: ResponseEnvelope) -> None:
    text = text_of(data, envelope)
    assert json_value.loads(data_text(text)) == data
    assert envelope_of(text) == envelope


@given(VALUES, ENVELOPES)
def test_an_answer_and_a_journal_carry_every_byte(data: Any, envelope: ResponseEnvelope) -> None:
    live = tool_result(text_of(data, envelope), tool="t")
    answer = Answer(key="k", state=AnswerState.COMPLETED, output=live.output)
    (message,) = answer_message.to_texts([answer], inline_bytes=1_000_000, message_bytes=1_000_000)
    assert answer_message.from_text(message) == [answer]
    assert journal_result(as_jsonb(journal_json(live))).output == live.output


@given(VALUES, ENVELOPES, st.sampled_from(["root", "name", "item"]))
def test_a_cell_gives_back_an_equal_result(data: Any, envelope: ResponseEnvelope, place: str) -> None:
    live = tool_result(text_of(data, envelope), tool="t")
    value: Any = {"root": live, "name": {"a/~b": live, "c": 1}, "item": [0, live]}[place]
    stored, marks = plain(value)
    json_value.check(stored)
    json_value.check(marks)
    in_row = alive(stored, marks)
    later = alive(as_jsonb(stored), as_jsonb(marks))
    for again in (in_row, later):
        result = again if place == "root" else again["a/~b"] if place == "name" else again[1]
        assert result == live
        assert (result.raw, result.meta, result.status) == (live.raw, live.meta, live.status)
    if place == "root":
        assert in_row.output == live.output


@given(VALUES)
def test_plain_values_pass_untouched(value: Any) -> None:
    same, marks = plain(value)
    assert same is value
    assert marks == {}
