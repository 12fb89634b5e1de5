"""Batch strategies: payload, matching, item failures, hostile values."""

from dataclasses import replace
from typing import Any

import pytest

from runtime.errors import PlayDefinitionError
from runtime.model.outcome import ItemCompleted, ItemFailed, ItemUnknown
from runtime.model.tool import BatchRule, ToolMetadata
from runtime.policy.batching import halves, strategy_for

RULE = BatchRule(operation="t_batch", max_batch_size=100)
KEYED = strategy_for(ToolMetadata(tool="t", provider="p", batch=RULE))
BARE = replace(RULE, input_key=None, strategy="positional")
POSITIONAL = strategy_for(ToolMetadata(tool="t", provider="p", batch=BARE))
SINGLE = strategy_for(ToolMetadata(tool="t", provider="p"))


def split(*items: Any, inputs: int = 2) -> Any:
    return KEYED.split({"items": list(items)}, [{}] * inputs)


def good(key: str, value: Any = 1, **more: Any) -> dict[str, Any]:
    return {"key": key, "result": value, **more}


def test_payloads() -> None:
    assert KEYED.payload([{"a": 1}, "x"]) == {
        "items": [{"key": "0", "input": {"a": 1}}, {"key": "1", "input": "x"}]
    }
    assert POSITIONAL.payload([{"a": 1}, "x"]) == {"items": [{"a": 1}, "x"]}
    assert SINGLE.payload([{"a": 1}]) == {"a": 1}
    assert (SINGLE.operation, SINGLE.max_batch_size) == ("t", 1)
    assert (KEYED.operation, KEYED.max_batch_size, KEYED.name, KEYED.revision) == (
        "t_batch",
        100,
        "keyed",
        "1",
    )


def test_a_rule_for_one_is_a_single_call() -> None:
    rule = replace(RULE, max_batch_size=1)
    assert strategy_for(ToolMetadata(tool="t", provider="p", batch=rule)) == SINGLE


@pytest.mark.parametrize("changes", [{"strategy": "magic"}, {"strategy": "positional"}, {"input_key": None}])
def test_a_strategy_that_is_not_known_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(PlayDefinitionError, match="nothing was called"):
        strategy_for(ToolMetadata(tool="t", provider="p", batch=replace(RULE, **changes)))


def test_a_missing_item_is_that_calls_own_retryable_error() -> None:
    first, second = split(good("0")).outcomes
    assert first == ItemCompleted(output_json=b"1")
    assert isinstance(second, ItemFailed)
    assert (second.code, second.retryable, second.terminal) == ("item_missing", True, False)


def test_strangers_are_dropped_and_named() -> None:
    answer = split(
        good("0"), good("1"), good("9"), good("00"), {"key": 1, "result": 2}, "text", {"result": 3}
    )
    assert [outcome.output_json for outcome in answer.outcomes] == [b"1", b"1"]
    assert answer.strangers == ("'9'", "'00'", "1", "None", "None")


def test_a_doubled_item_is_ambiguous_and_its_neighbour_is_not() -> None:
    answer = split(good("0"), good("1", "a"), good("0"))
    assert isinstance(answer.outcomes[0], ItemUnknown)
    assert answer.outcomes[1] == ItemCompleted(output_json=b'"a"')
    assert answer.doubled == ("0",)


@pytest.mark.parametrize("reply", [None, [], {}, {"items": None}, {"items": {}}, "text"])
def test_a_reply_without_items_leaves_every_call_unknown(reply: Any) -> None:
    for strategy in (KEYED, POSITIONAL):
        assert all(isinstance(outcome, ItemUnknown) for outcome in strategy.split(reply, [{}, {}]).outcomes)


@pytest.mark.parametrize("length", [0, 1, 3])
def test_without_keys_another_length_is_refused_whole(length: int) -> None:
    outcomes = POSITIONAL.split({"items": [{"result": n} for n in range(length)]}, [{}, {}]).outcomes
    assert [type(outcome) for outcome in outcomes] == [ItemUnknown, ItemUnknown]


def test_item_failures_stay_with_their_item() -> None:
    error = {"code": "nope", "message": "bad\x00 \ud800", "retryable": True, "credits": 0}
    outcomes = split({"key": "0", "error": error}, good("1", None, credits=2)).outcomes
    assert outcomes[0] == ItemFailed(
        code="nope", message="bad  ?", retryable=True, terminal=False, charged=False, credits=0
    )
    assert outcomes[1] == ItemCompleted(output_json=b"null", credits=2)


@pytest.mark.parametrize("error", ["text", 7, [], {"code": ""}, {"message": 3}])
def test_an_error_of_any_shape_is_a_final_failure(error: Any) -> None:
    (outcome,) = split({"key": "0", "error": error}, inputs=1).outcomes
    assert isinstance(outcome, ItemFailed)
    assert outcome.terminal
    assert outcome.message


def test_an_item_that_says_nothing_is_unknown() -> None:
    assert isinstance(split({"key": "0"}, inputs=1).outcomes[0], ItemUnknown)


DEEP: Any = 1
for _ in range(700):
    DEEP = {"a": DEEP}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": ["\x00"]}, "\ud800", DEEP])
def test_a_value_that_cannot_be_stored_spoils_its_own_item(value: Any) -> None:
    outcomes = split(good("0", value), good("1")).outcomes
    assert isinstance(outcomes[0], ItemFailed)
    assert (outcomes[0].code, outcomes[0].terminal) == ("bad_output", True)
    assert outcomes[1] == ItemCompleted(output_json=b"1")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**70, b"1180591620717411303424"),
        (9007199254740993, b"9007199254740993"),
        (-0.0, b"-0.0"),
        ({"__type__": "x", "value": [1]}, b'{"__type__":"x","value":[1]}'),
    ],
)
def test_values_keep_their_digits_and_shape(value: Any, text: bytes) -> None:
    assert split(good("0", value), inputs=1).outcomes == (ItemCompleted(output_json=text),)


def test_bucket_fields_keep_inputs_apart() -> None:
    rule = replace(RULE, bucket_fields=("country",))
    strategy = strategy_for(ToolMetadata(tool="t", provider="p", batch=rule))
    german = strategy.bucket({"country": "DE", "name": "a"})
    assert german == strategy.bucket({"country": "DE", "name": "b"})
    assert german != strategy.bucket({"country": "FR", "name": "a"})
    assert strategy.bucket("text") == strategy.bucket({})
    assert KEYED.bucket({"x": 1}) == KEYED.bucket({"x": 2}) == SINGLE.bucket(3) == ""


def test_one_cannot_be_halved() -> None:
    with pytest.raises(ValueError, match="can't be halved"):
        halves([1])
