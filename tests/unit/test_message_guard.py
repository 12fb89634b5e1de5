"""A message that is no task is dropped; one such message used to end every control process that met it."""

from typing import Any

import pytest
from celery.worker.consumer import Consumer

from workers.message_guard import GuardedConsumer


class Message:
    headers = None

    def __init__(self) -> None:
        self.acknowledged = False

    def ack(self) -> None:
        self.acknowledged = True


class Bare(GuardedConsumer):
    connection_errors = (ConnectionError, KeyError)

    def __init__(self) -> None: ...


def handler(monkeypatch: pytest.MonkeyPatch, raised: Exception) -> Any:
    def handle(message: Any) -> None:
        raise raised

    monkeypatch.setattr(Consumer, "create_task_handler", lambda self: handle)
    return Bare().create_task_handler()


@pytest.mark.parametrize("raised", [ValueError("unpack"), KeyError("id"), AttributeError("get"), TypeError()])
def test_what_is_no_task_is_dropped(monkeypatch: pytest.MonkeyPatch, raised: Exception) -> None:
    message = Message()
    handler(monkeypatch, raised)(message)
    assert message.acknowledged


def test_a_lost_connection_is_not_the_messages_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    message = Message()
    with pytest.raises(ConnectionError):
        handler(monkeypatch, ConnectionError("gone"))(message)
    assert not message.acknowledged
