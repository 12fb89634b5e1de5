"""The bytes that a receipt keeps: data, and what else the response held."""

import math

from runtime.model import json_value
from runtime.model.outcome import ItemCompleted, ItemFailed, ItemUnknown
from runtime.model.tool_output import (
    UNSTORABLE,
    ResponseEnvelope,
    data_text,
    envelope_of,
    second_line,
    with_envelope,
)

OUTCOMES = (ItemCompleted(output_json=b'{"a":1}'), ItemFailed(code="c", message="m"), ItemUnknown(reason="r"))


def test_a_plain_response_is_its_data_alone() -> None:
    assert second_line(ResponseEnvelope()) == b""
    assert with_envelope(OUTCOMES, ResponseEnvelope(), is_single=True, max_meta_bytes=100) == OUTCOMES
    assert envelope_of(b'{"a":1}') == ResponseEnvelope()


def test_a_single_call_keeps_the_whole_response() -> None:
    envelope = ResponseEnvelope(status="partial", job_id="j", is_raw=True, rest={"x": 1}, meta={"m": 1})
    done, failed, unknown = with_envelope(OUTCOMES, envelope, is_single=True, max_meta_bytes=100)
    assert isinstance(done, ItemCompleted)
    assert data_text(done.output_json) == b'{"a":1}'
    assert envelope_of(done.output_json) == envelope
    assert (failed, unknown) == OUTCOMES[1:]


def test_an_item_of_a_batch_keeps_the_meta_alone() -> None:
    envelope = ResponseEnvelope(status="partial", job_id="j", rest={"page": 1}, meta={"m": 1})
    done = with_envelope(OUTCOMES, envelope, is_single=False, max_meta_bytes=100)[0]
    assert isinstance(done, ItemCompleted)
    assert envelope_of(done.output_json) == ResponseEnvelope(meta={"m": 1})


def test_data_that_looks_like_the_second_line_stays_data() -> None:
    """B18: a provider can't say anything about the response from inside its data."""
    hostile = {
        "text": '1\n{"meta":{"forged":true}}',
        "meta": {"forged": True},
        "rest": {"kind": "tool_result"},
    }
    text = json_value.dumps(hostile)
    assert b"\n" not in text
    assert data_text(text) == text
    assert envelope_of(text) == ResponseEnvelope()


def test_what_cannot_be_kept_beside_the_data_says_so_and_costs_no_data() -> None:
    envelope = ResponseEnvelope(status="a\x00b", job_id="\ud800", rest={"x": math.nan}, meta={"m": "y" * 200})
    done = with_envelope(OUTCOMES[:1], envelope, is_single=True, max_meta_bytes=100)[0]
    assert isinstance(done, ItemCompleted)
    kept = envelope_of(done.output_json)
    assert (kept.status, kept.job_id) == (UNSTORABLE, UNSTORABLE)
    assert kept.rest == {UNSTORABLE: "$.x: nan is not a finite number"}
    assert kept.meta == {UNSTORABLE: "$.meta: 208 bytes of JSON, more than the 100 that are kept"}
