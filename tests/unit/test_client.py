"""The client's messages, compared with Celery's own, and its errors."""

import inspect
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from celery import Celery

from runtime.async_client import AsyncPlayClient
from runtime.client import PlayClient, new_run_id
from runtime.errors import BadInputError, ServiceUnreachableError
from runtime.model.messages import parse_play_run
from runtime.model.task_message import task_message
from runtime.policy.limits import DEFAULT_LIMITS, Limits
from runtime.server_address import postgres_address, redis_address

HASTY = Limits(client_connect_s=2.0, client_redis_s=0.5)
KWARGS = {"version": 1, "run_id": "r1"}


def celery_message(**options: Any) -> Any:
    app = Celery("compare", broker="memory://", set_as_current=False)
    return app.amqp.as_task_v2("id-1", "runs.cancel", kwargs=KWARGS, origin="1@host", **options)


def test_headers_body_and_properties_are_celerys():
    theirs = celery_message(ignore_result=True, argsrepr="()", kwargsrepr="run=r1")
    ours = task_message("runs.cancel", KWARGS, task_id="id-1", origin="1@host", kwargsrepr="run=r1")
    assert ours.headers == theirs.headers
    assert [list(ours.body[0]), *ours.body[1:]] == [list(theirs.body[0]), *theirs.body[1:]]
    assert theirs.properties.items() <= ours.properties.items()


def test_monitors_see_no_input():
    message = task_message("plays.run", {"input": "secret"}, task_id="t", origin="o", kwargsrepr="run=r1")
    assert "secret" not in str(message.headers)


def test_a_run_id_sorts_by_time_and_is_accepted():
    assert parse_play_run({"run_id": new_run_id(), "play": "airports"}, input_bytes=100)
    assert new_run_id() != new_run_id()


@pytest.mark.parametrize(
    "fields",
    [
        {"play": ""},
        {"play": "p", "run_id": "a b"},
        {"play": "p", "options": {"nonsense": 1}},
        {"play": "p", "input": {"x": float("nan")}},
        {"play": "p", "input": {"x": object()}},
        {"play": "p", "input": "x" * 2_000_000},
    ],
)
def test_bad_fields_are_refused_before_anything_is_sent(fields: dict[str, Any]):
    client = PlayClient(redis_url="redis://127.0.0.1:1/0")
    with pytest.raises(BadInputError):
        client.enqueue(**fields)


def test_a_client_without_a_database_says_so():
    client = PlayClient(redis_url="redis://127.0.0.1:1/0")
    with pytest.raises(BadInputError, match="no database"):
        client.status("r1")


def test_addresses_leave_passwords_out():
    assert postgres_address("postgresql://u:s3cret@db.example:6543/x") == "db.example:6543"
    assert postgres_address("host=h user=u password=s3cret") == "h:5432"
    assert redis_address("redis://:s3cret@cache.example/2") == "cache.example:6379"
    for wrong in ("postgresql:s3cret", "s3cret"):
        with pytest.raises(BadInputError) as refused:
            postgres_address(wrong)
        assert "s3cret" not in str(refused.value)
    with pytest.raises(BadInputError):
        redis_address("http://:s3cret@x")


@contextmanager
def silent_server() -> Iterator[int]:
    """Accepts connections and never says a word."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(16)
        yield server.getsockname()[1]


def refused(call: Any) -> tuple[str, float]:
    begun = time.monotonic()
    with pytest.raises(ServiceUnreachableError) as error:
        call()
    return str(error.value), time.monotonic() - begun


def test_the_bounds_are_about_five_seconds():
    assert DEFAULT_LIMITS.client_connect_s <= 5
    assert DEFAULT_LIMITS.client_redis_s * (1 + DEFAULT_LIMITS.client_publish_retries) <= 5


def test_a_closed_redis_is_named_within_seconds():
    client = PlayClient(redis_url="redis://:s3cret@127.0.0.1:1/0")
    text, passed_s = refused(lambda: client.enqueue("airports"))
    assert "Redis at 127.0.0.1:1" in text
    assert "PLAYLANE_REDIS_URL" in text
    assert "s3cret" not in text
    assert passed_s < 5


def test_a_silent_redis_is_named_within_seconds():
    with silent_server() as port:
        client = PlayClient(redis_url=f"redis://:s3cret@127.0.0.1:{port}/0", limits=HASTY)
        text, passed_s = refused(lambda: client.cancel("r1"))
    assert f"Redis at 127.0.0.1:{port}" in text
    assert passed_s < 3


def test_a_silent_postgres_is_named_within_seconds():
    with silent_server() as port:
        url = f"postgresql://u:s3cret@127.0.0.1:{port}/x"
        client = PlayClient(redis_url="redis://127.0.0.1:1/0", database_url=url, limits=HASTY)
        text, passed_s = refused(lambda: client.status("r1"))
    assert f"Postgres at 127.0.0.1:{port}" in text
    assert "s3cret" not in text
    assert passed_s < 4


def test_the_awaited_client_does_what_the_blocking_one_does() -> None:
    def asked(kind: type) -> dict[str, list[str]]:
        return {
            name: [one.name for one in inspect.signature(method).parameters.values()]
            for name, method in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_") and name not in ("close", "aclose")
        }

    assert asked(AsyncPlayClient) == asked(PlayClient)
