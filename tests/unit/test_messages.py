"""`plays.run` v1: what is refused, and that the refusal names every wrong field."""

from typing import Any

import pytest

from runtime.errors import BadInputError
from runtime.model.messages import parse_play_run

GOOD: dict[str, Any] = {
    "version": 1,
    "run_id": "r-1",
    "org_id": "o",
    "play": "p",
    "input": {"a": 1},
    "options": {},
}


def test_a_good_message_becomes_a_run() -> None:
    run = parse_play_run(GOOD, input_bytes=1_000).to_run()
    assert (run.run_id, run.org_id, run.play, run.input, run.options) == ("r-1", "o", "p", {"a": 1}, {})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"version": 2}, "version"),
        ({"run_id": ""}, "run_id"),
        ({"run_id": "no spaces"}, "run_id"),
        ({"play": ""}, "play"),
        ({"options": {"speed": 11}}, "options.speed"),
        ({"extra": 1}, "extra"),
        ({"input": {"x": float("nan")}}, "$.input.x"),
        ({"input": {"x": "y" * 2_000}}, "bytes"),
    ],
)
def test_a_bad_message_is_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(BadInputError) as raised:
        parse_play_run(GOOD | changes, input_bytes=1_000)
    assert named in str(raised.value)


def test_refresh_options_are_kept_where_they_are_set() -> None:
    options = {"refresh_tools": True, "refresh_failed": False}
    run = parse_play_run(GOOD | {"options": options}, input_bytes=1_000).to_run()
    assert run.options == {"refresh_tools": True}


@pytest.mark.parametrize("options", [{"refresh_tools": 1}, {"refresh_steps": "yes"}, {"refresh": True}])
def test_a_refresh_option_is_a_known_boolean(options: dict[str, Any]) -> None:
    with pytest.raises(BadInputError, match="options"):
        parse_play_run(GOOD | {"options": options}, input_bytes=1_000)
