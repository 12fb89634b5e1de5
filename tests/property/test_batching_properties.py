"""Whatever a provider does to a batch's reply, every call gets its own answer or none."""

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from runtime.model import json_value
from runtime.model.outcome import ItemCompleted, ItemFailed, ItemUnknown
from runtime.model.tool import BatchRule, ToolMetadata
from runtime.policy.batching import halves, strategy_for

KEYED = strategy_for(
    ToolMetadata(tool="t", provider="p", batch=BatchRule(operation="t_batch", max_batch_size=100))
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(count=st.integers(1, 30), data=st.data())
def test_every_call_gets_its_own_answer(count: int, data: st.DataObject) -> None:
    """Shuffled, short, doubled and with strangers: a completed call never holds another call's value."""
    inputs = [{"item": n} for n in range(count)]
    sent = KEYED.payload(inputs)["items"]
    copies = [data.draw(st.sampled_from([1, 1, 1, 0, 2])) for _ in range(count)]
    items = [
        {"key": item["key"], "result": item["input"]["item"]}
        for item, n in zip(sent, copies, strict=True)
        for _ in range(n)
    ]
    strangers = data.draw(st.lists(JSON, max_size=3))
    reply = {"items": data.draw(st.permutations([*items, *({"key": ["s", s]} for s in strangers)]))}
    split = KEYED.split(reply, inputs)
    assert len(split.outcomes) == count
    assert len(split.strangers) == len(strangers)
    for position, (outcome, n) in enumerate(zip(split.outcomes, copies, strict=True)):
        match n:
            case 0:
                assert isinstance(outcome, ItemFailed)
                assert outcome.retryable
            case 1:
                assert outcome == ItemCompleted(output_json=str(position).encode())
            case _:
                assert isinstance(outcome, ItemUnknown)


@given(
    reply=JSON
    | st.fixed_dictionaries(
        {"items": st.lists(JSON | st.fixed_dictionaries({"key": st.sampled_from("01x"), "result": JSON}))}
    )
)
def test_no_reply_breaks_the_split(reply: Any) -> None:
    """One outcome per call, and each completed output can be stored."""
    split = KEYED.split(reply, [{}, {}])
    assert len(split.outcomes) == 2
    for outcome in split.outcomes:
        if isinstance(outcome, ItemCompleted):
            json_value.check(json_value.loads(outcome.output_json))


@given(count=st.integers(2, 200), bad=st.integers(0, 199))
def test_bisection_finds_the_bad_item_in_few_requests(count: int, bad: int) -> None:
    bad %= count
    waiting, requests, succeeded, failed = [list(range(count))], 0, [], []
    while waiting:
        members = list(waiting.pop())
        requests += 1
        if bad not in members:
            succeeded += members
        elif len(members) == 1:
            failed += members
        else:
            waiting += [list(half) for half in halves(members)]
    assert failed == [bad]
    assert sorted([*succeeded, bad]) == list(range(count))
    assert requests - 1 <= 2 * math.ceil(math.log2(count))


@given(count=st.integers(2, 300))
def test_halves_keep_members_and_order(count: int) -> None:
    first, second = halves(range(count))
    assert [*first, *second] == list(range(count))
    assert abs(len(first) - len(second)) <= 1
