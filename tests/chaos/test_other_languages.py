"""A service that has neither Python nor Celery starts a run and reads its result."""

import base64
import json
import os
import shutil
import subprocess
import uuid
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from runtime.model.run import RunState
from tests.chaos.stack_under_test import StackUnderTest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "node"
NPM_S = 90


def message(kwargs: dict[str, Any]) -> str:
    """What the Node example puts into the queue: protocol 2 in the envelope that kombu reads from a Redis list."""
    task_id = str(uuid.uuid4())
    return json.dumps(
        {
            "body": base64.b64encode(json.dumps([[], kwargs, {}]).encode()).decode(),
            "content-type": "application/json",
            "content-encoding": "utf-8",
            "headers": {
                "lang": "js",
                "task": "plays.run",
                "id": task_id,
                "argsrepr": "()",
                "kwargsrepr": f"run={kwargs['run_id']}",
            },
            "properties": {
                "body_encoding": "base64",
                "correlation_id": task_id,
                "delivery_info": {"exchange": "", "routing_key": "control"},
                "delivery_mode": 2,
                "delivery_tag": str(uuid.uuid4()),
                "priority": 0,
            },
        }
    )


def test_a_message_of_a_few_lines_starts_a_run_once(stack: StackUnderTest) -> None:
    tag = token_hex(3)
    kwargs = {"version": 1, "run_id": f"raw-{tag}", "org_id": f"org-{tag}", "play": "chaos"}
    with stack.redis(0) as broker:
        for rows in (10, 20):
            broker.lpush("control", message({**kwargs, "input": {"tag": tag, "rows": rows}, "options": {}}))
    with stack.client() as client:
        stack.until(lambda: client.find(f"raw-{tag}"), "the run stored")
        assert client.result(f"raw-{tag}", 60)["first"] == 10


@pytest.mark.parametrize(
    ("fields", "named"),
    [({"play": "chaos", "speed": 11}, "speed"), ({"play": "a\x00b"}, "$.play"), ({"play": "\ud800"}, "play")],
    ids=["unknown option", "NUL", "half a surrogate pair"],
)
def test_a_refused_message_ends_as_a_run_with_the_reason(
    stack: StackUnderTest, fields: dict[str, Any], named: str
) -> None:
    run_id = f"raw-{token_hex(3)}"
    with stack.redis(0) as broker:
        broker.lpush("control", message({"version": 1, "run_id": run_id, **fields}))
    with stack.client() as client:
        stack.until(lambda: client.find(run_id), "the run stored")
        status = client.status(run_id)
    assert status.state is RunState.FAILED
    assert status.error is not None and named in status.error["message"]


@pytest.mark.skipif(shutil.which("npm") is None, reason="no Node here")
def test_the_node_example(stack: StackUnderTest, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "node", ignore=shutil.ignore_patterns("node_modules"))
    folder = tmp_path / "node"
    quiet = ["--no-audit", "--no-fund", "--prefer-offline", "--loglevel=error"]
    installed = subprocess.run(
        ["npm", "install", *quiet], cwd=folder, capture_output=True, timeout=NPM_S, check=False
    )
    if installed.returncode:
        pytest.skip(f"npm installs nothing here: {installed.stderr.decode()[-200:]}")
    tag = token_hex(3)
    environment = {
        **os.environ,
        "PLAYLANE_REDIS_URL": stack.servers.redis_url,
        "PLAYLANE_DATABASE_URL": stack.servers.database_url,
    }
    done = subprocess.run(
        ["node", "start_run.mjs", "chaos", json.dumps({"tag": tag, "rows": 10}), f"node-{tag}"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert (printed["run_id"], printed["state"], printed["result"]["first"]) == (
        f"node-{tag}",
        "completed",
        10,
    )
