"""What an operator sets: wrong settings end in a sentence that names them, before anything starts."""

import subprocess
import sys
from typing import Any

import pytest

from broker_config.celery_config import celery_settings
from broker_config.settings import Settings
from runtime.errors import BadInputError
from workers.app import load_settings
from workers.configuration import limits_of

GOOD: dict[str, Any] = {
    "database_url": "postgresql://u:p@127.0.0.1:1/x",
    "redis_url": "redis://127.0.0.1:1/3",
    "execution_api_url": "http://127.0.0.1:1",
}


def settings(**changes: Any) -> Settings:
    return load_settings(**(GOOD | changes))


def test_redis_databases_follow_the_first() -> None:
    made = settings()
    assert [made.broker_url[-2:], made.result_url[-2:], made.state_url[-2:]] == ["/3", "/4", "/5"]


def test_a_broker_of_its_own_leaves_redis_for_the_rest() -> None:
    made = settings(broker_url="amqp://u:secret@127.0.0.1/v")
    assert (made.broker_is_redis, made.result_url[-2:], made.state_url[-2:]) == (False, "/4", "/5")
    assert "secret" not in repr(made)
    celery = celery_settings(made)
    assert celery["broker_url"] == "amqp://u:secret@127.0.0.1/v"
    assert celery["broker_transport_options"]["confirm_publish"] is True
    assert celery["worker_disable_prefetch"] is False
    assert "visibility_timeout" in celery["result_backend_transport_options"]


def test_celery_keeps_to_redis_without_another_broker() -> None:
    celery = celery_settings(settings())
    assert (celery["broker_url"][-2:], celery["worker_disable_prefetch"]) == ("/3", True)
    assert celery["broker_transport_options"]["visibility_timeout"] == 30


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"redis_url": "http://x"}, "PLAYLANE_REDIS_URL"),
        ({"broker_url": "http://x"}, "PLAYLANE_BROKER_URL"),
        ({"execution_api_url": "nope"}, "PLAYLANE_EXECUTION_API_URL"),
        ({"log_level": "LOUD"}, "PLAYLANE_LOG_LEVEL"),
    ],
)
def test_a_wrong_setting_is_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(BadInputError, match=named):
        settings(**changes)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"slice_row": 50}, "did you mean slice_rows"),
        ({"slice_rows": -1}, "above 0"),
        ({"slice_rows": "x"}, "above 0"),
        ({"slice_rows": 1.5}, "whole number"),
        ({"sweep_s": True}, "above 0"),
    ],
)
def test_a_wrong_limit_is_named(limits: dict[str, Any], said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        limits_of(settings(limits=limits))


def test_limits_are_overridden() -> None:
    assert limits_of(settings(limits={"slice_rows": 50, "sweep_s": 0.5})).slice_rows == 50


def test_a_worker_that_celery_starts_itself_refuses_to_consume() -> None:
    """It would have no session, and its queues could mix lanes with tasks."""
    env = {f"PLAYLANE_{name.upper()}": value for name, value in GOOD.items()}
    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "workers.app",
        "worker",
        "-Q",
        "rows,lane.default",
        "-P",
        "threads",
    ]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 2, done.stderr
    assert "playlane worker ROLE" in done.stderr


def test_a_worker_whose_servers_do_not_answer_ends_with_a_sentence() -> None:
    env = {f"PLAYLANE_{name.upper()}": value for name, value in GOOD.items()}
    env["PLAYLANE_LIMITS"] = '{"database_timeout_s": 1, "redis_timeout_s": 0.5}'
    command = [sys.executable, "-m", "workers.cli.main", "worker", "rows"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "error: the rows worker can't start" in done.stderr
    assert "ready" not in done.stdout and "Traceback" not in done.stdout + done.stderr
