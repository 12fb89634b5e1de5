"""Telling runs of an event: the message, the client's checks, the command's arguments."""

from typing import Any

import pytest

from runtime.client import PlayClient
from runtime.errors import BadInputError
from runtime.execution_api.parsing import tool_metadata
from runtime.model import json_value
from runtime.model.boundary import Event
from runtime.model.messages import parse_event
from runtime.model.waiting_tool import EventRule, PollRule, at_path
from workers.cli.deliver import parsed

MESSAGE = {"version": 1, "event_id": "e1", "org_id": "acme", "key": "approval:42", "payload": {"ok": True}}


class Sent:
    """What a ControlSender was given."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, dict[str, Any], str]] = []

    def send(self, task: str, kwargs: dict[str, Any], *, about: str) -> None:
        self.messages.append((task, kwargs, about))

    def close(self) -> None: ...


def test_the_message_is_the_event() -> None:
    told = parse_event(MESSAGE, payload_bytes=100).to_event()
    assert told == Event(org_id="acme", event_id="e1", key="approval:42", payload={"ok": True})


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"version": 2}, "version"),
        ({"event_id": ""}, "event_id"),
        ({"key": "k" * 201}, "key"),
        ({"org_id": "no org"}, "org_id"),
        ({"payload": "x" * 101}, "payload"),
        ({"payload": {"a": "\x00"}}, r"\$\.payload\.a"),
        ({"more": 1}, "more"),
    ],
)
def test_a_bad_message_is_refused_by_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(BadInputError, match=field):
        parse_event(MESSAGE | change, payload_bytes=100)


def test_a_client_without_a_database_sends_the_event() -> None:
    with PlayClient(redis_url="redis://127.0.0.1:1/0", org_id="acme") as client:
        sent = Sent()
        client._messages = sent  # type: ignore[assignment]
        told = client.deliver("approval:42", {"ok": True})
        again = client.deliver("approval:42", event_id="mine")
    assert [kwargs["event_id"] for _, kwargs, _ in sent.messages] == [told, again] == [told, "mine"]
    task, kwargs, about = sent.messages[0]
    assert (task, kwargs["org_id"], kwargs["payload"]) == ("events.deliver", "acme", {"ok": True})
    assert "approval" not in about


def test_a_payload_that_is_not_json_is_refused() -> None:
    assert parsed('{"a": [1, null]}') == {"a": [1, None]}
    for bad in ("{", "yes", "NaN"):
        with pytest.raises(BadInputError):
            parsed(bad)


def test_tools_declare_how_their_answer_comes() -> None:
    declared = {
        "provider": "p",
        "eventWait": True,
        "retry": {"retrySafeEventWaitArm": True},
        "asyncOperation": {
            "pollTool": "s",
            "jobPath": "job.id",
            "pendingStatuses": ["Busy"],
            "intervalMs": 10,
        },
    }
    metadata = tool_metadata("t", json_value.dumps(declared))
    assert metadata.event == EventRule(arm_repeats=True)
    assert metadata.poll == PollRule(tool="s", job_path="job.id", pending=("busy",), interval_ms=10)
    plain = tool_metadata("t", b'{"provider":"p"}')
    assert (plain.event, plain.poll) == (None, None)


def test_a_path_leads_into_objects_only() -> None:
    assert at_path({"a": {"b": 1}}, "a.b") == 1
    assert at_path({"a": [1]}, "a.0") is None
