"""The schema files are what the models say, and a schema alone tells good from bad."""

import json

import pytest

from runtime.errors import BadInputError
from runtime.message_schemas import FOLDER, schemas, text_of
from runtime.model.events import TYPES, RunEnded, from_text, to_text


@pytest.mark.parametrize("name", schemas())
def test_the_file_is_what_the_model_says(name: str) -> None:
    """If not: `make schemas`."""
    assert (FOLDER / name).read_text(encoding="utf-8") == text_of(schemas()[name])


def test_no_file_is_left_over() -> None:
    assert {path.name for path in FOLDER.iterdir() if path.suffix == ".json"} == set(schemas())


def test_a_run_message_has_bounds_and_closed_options() -> None:
    schema = schemas()["plays.run.v1.json"]
    assert schema["required"] == ["run_id", "play"]
    assert schema["additionalProperties"] is False
    options = schema["$defs"]["RunOptions"]
    assert options["additionalProperties"] is False
    assert {
        "refresh_tools",
        "refresh_failed",
        "refresh_steps",
        "deadline_s",
        "capture",
        "integration_mode",
    } <= set(options["properties"])


def test_every_event_has_a_type_of_its_own_in_the_schema() -> None:
    text = json.dumps(schemas()["run.event.v1.json"])
    assert len(set(TYPES)) == len(TYPES) == 15
    assert all(f'"const": "{kind}"' in text for kind in TYPES)


def test_an_event_comes_back_as_it_was() -> None:
    event = RunEnded(state="completed", result={"n": 2**70, "x": [None, 0.5]})
    read = from_text(to_text("r1", 7, event))
    assert (read.run_id, read.at_ms, read.event, read.is_last) == ("r1", 7, event, True)


@pytest.mark.parametrize(
    "text", [b"{}", b"no", b'{"version": 2, "run_id": "r", "at_ms": 1, "event": {"type": "x"}}']
)
def test_an_event_of_another_release_is_refused(text: bytes) -> None:
    with pytest.raises(BadInputError, match="another release"):
        from_text(text)
