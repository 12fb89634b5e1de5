"""Caps: what may be said of them, and which of two words counts."""

from typing import Any

import pytest

from runtime.errors import BadInputError, BudgetExceededError, PlayDefinitionError, tool_call_error
from runtime.model.budget import Account, Caps
from runtime.model.messages import parse_play_run
from runtime.model.tool import ToolMetadata
from runtime.play import PlayRegistry, play
from runtime.policy import budgeting


def test_options_replace_a_plays_caps_down_or_up() -> None:
    declared = Caps(credits=500, tool_calls=10)
    assert budgeting.effective(declared, Caps.of_options({"max_credits": 5})) == Caps(
        credits=5, tool_calls=10
    )
    assert budgeting.effective(declared, Caps.of_options({"max_credits": 5_000})).credits == 5_000
    assert budgeting.effective(declared, Caps.of_options({})) == declared
    assert budgeting.effective(Caps(), Caps.of_options({"max_credits": 0})).credits == 0


def test_a_play_declares_its_caps() -> None:
    registry = PlayRegistry()

    @play("capped", registry=registry, max_credits=500, max_retries=3, max_depth=1)
    async def capped(ctx: Any, input: Any) -> None: ...

    assert registry.find("capped").caps == Caps(credits=500, retries=3, depth=1)


@pytest.mark.parametrize(
    ("caps", "words"),
    [
        ({"max_credits": -1}, "max_credits is None (no cap) or a number from 0 to 1e+15, not -1"),
        ({"max_credits": float("nan")}, "not nan"),
        ({"max_credits": True}, "not True"),
        ({"max_tool_calls": 1.5}, "a whole number from 0 to 1e+15, not 1.5"),
        ({"max_depth": "2"}, "not '2'"),
    ],
)
def test_a_cap_that_makes_no_sense_is_named(caps: dict[str, Any], words: str) -> None:
    with pytest.raises(PlayDefinitionError) as caught:
        play("capped", registry=PlayRegistry(), **caps)
    assert 'play "capped"' in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"max_credits": -0.5}, "options.max_credits"),
        ({"max_credits": "12"}, "options.max_credits"),
        ({"max_credits": float("inf")}, "options.max_credits"),
        ({"max_tool_calls": 1.5}, "options.max_tool_calls"),
        ({"max_child_plays": True}, "options.max_child_plays"),
        ({"max_money": 1}, "options.max_money"),
        ({"budget": ["another-run"]}, "options.budget"),
        ({"lineage": {}}, "options.lineage"),
    ],
)
def test_a_wrong_option_is_named_at_admission(options: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse_play_run({"run_id": "r", "play": "p", "options": options}, input_bytes=1_000)
    assert field in str(caught.value)


def test_options_travel_as_they_were_given() -> None:
    given = {"max_credits": 0, "max_tool_calls": 0, "max_retries": 3, "max_child_plays": 1, "max_depth": 2}
    message = parse_play_run({"run_id": "r", "play": "p", "options": given}, input_bytes=1_000)
    assert message.to_run().options == given


@pytest.mark.parametrize(
    ("declared", "reserved"), [({"credits_per_item": 2.0}, 2.0), ({"credits_at_most": 5.0}, 5.0), ({}, 0.0)]
)
def test_what_is_reserved_for_a_call(declared: dict[str, Any], reserved: float) -> None:
    assert budgeting.price(ToolMetadata(tool="t", provider="p", **declared)) == reserved


def test_room_is_told_in_calls() -> None:
    account = Account(account="r", caps=Caps(credits=10, tool_calls=4), credits_spent=6, tool_calls=1)
    assert [budgeting.room(account, price) for price in (0, 1, 2, 3, 5)] == [3, 3, 2, 1, 0]


def test_the_error_of_a_used_up_budget_survives_its_payload() -> None:
    error = tool_call_error({"code": "budget_exceeded", "message": "m", "tool": "t", "retryable": True})
    assert isinstance(error, BudgetExceededError)
    assert error.retryable
