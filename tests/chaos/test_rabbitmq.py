"""The same stack on RabbitMQ, where a server is named in PLAYLANE_TEST_AMQP_URL; its virtual host is taken for it."""

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from broker_config.queues import ROLES, queues_of_role
from runtime.errors import ServersMissingError
from runtime.policy.limits import Limits
from tests.chaos.stack_under_test import StackUnderTest, stack_under_test
from workers.broker_queues import BrokerQueues
from workers.stack.stack import PLAYLANE

AMQP_VARIABLE = "PLAYLANE_TEST_AMQP_URL"


@pytest.fixture(scope="module")
def broker_url() -> str:
    url = os.environ.get(AMQP_VARIABLE, "")
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname or "", parts.port or 5672), 2).close()
    except OSError:
        pytest.skip(f"needs a RabbitMQ server, named in {AMQP_VARIABLE}")
    return url


@pytest.fixture(scope="module")
def on_rabbitmq(broker_url: str) -> Iterator[StackUnderTest]:
    try:
        with stack_under_test(
            logs=Path(".playlane/logs/rabbitmq").absolute(), broker_url=broker_url
        ) as stack:
            yield stack
    except ServersMissingError as error:
        pytest.skip(str(error))


async def test_a_run_survives_kills_and_a_flushed_redis(on_rabbitmq: StackUnderTest) -> None:
    """Messages travel by RabbitMQ, what is held lies in Redis: kill -9 of each role and FLUSHALL cost nothing."""
    stack = on_rabbitmq
    stack.latency_ms(150)
    run = stack.start(120)
    for role, rows in (("rows", 5), ("lanes", 30), ("plays", 50), ("control", 60)):
        stack.until_rows(run, rows)
        stack.until_restarted(role, stack.kill(role))
    stack.until_rows(run, 80)
    stack.flush_all()
    stack.check(run)
    queues = BrokerQueues(stack.broker_url or "", Limits())
    try:
        for name in (name for role in ROLES for name in queues_of_role(role)):
            assert await queues.length_of(name) == 0
        assert await queues.length_of("nobody-declared-this") == 0
    finally:
        await queues.close()


def test_doctor_sees_the_queues_and_their_readers(on_rabbitmq: StackUnderTest) -> None:
    env = dict(on_rabbitmq.child("rows").launch.env or {})
    env.pop("PLAYLANE_EXECUTION_API_URL")  # only workers need it
    asked = subprocess.run(
        [*PLAYLANE, "doctor", "--json"], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    found = {one["what"]: one for one in map(json.loads, asked.stdout.splitlines())}
    assert asked.returncode == 0, asked.stdout + asked.stderr
    for name in (name for role in ROLES for name in queues_of_role(role)):
        assert (found[f"queue {name}"]["verdict"], found[f"queue {name}"]["found"][:9]) == ("ok", "1 reading")
