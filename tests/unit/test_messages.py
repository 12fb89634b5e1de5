"""`plays.run` v1: what is refused, and that the refusal names every wrong field."""

from typing import Any

import pytest

from runtime.errors import BadInputError
from runtime.model.messages import parse_play_run, printable, refused_run

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
        ({"play": "a\x00b"}, "$.play"),
        ({"play": "\ud800"}, "play"),
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


def test_what_is_stored_of_a_refused_message_can_be_stored() -> None:
    """Else a message with such a name would end nowhere, and its sender would wait for ever."""
    found = refused_run({"run_id": "r\x00" + "1" * 300, "org_id": "\ud800", "play": {"no": "name"}})
    assert found is not None
    assert (found.run_id[:3], len(found.run_id), found.org_id, found.input) == ("r\ufffd1", 200, "?", None)
    assert printable({"message": "play a\x00b", "n": 1}) == {"message": "play a\ufffdb", "n": 1}


@pytest.mark.parametrize("run_id", ["", None, 7, ["r"]])
def test_a_message_without_a_run_id_starts_no_run(run_id: Any) -> None:
    assert refused_run({"run_id": run_id, "play": "p"}) is None
