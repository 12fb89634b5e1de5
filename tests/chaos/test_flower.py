"""Stock Flower over a real stack, as an operator opens it: behind a login, in a browser."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from examples.flower_report import POSTS
from tests.browser import different_lines, dom_of, screenshot
from tests.chaos.processes import ROLES
from tests.chaos.stack_under_test import StackUnderTest
from workers.stack.child import Child, Launch
from workers.stack.sockets import free_port
from workers.stack.stack import PLAYLANE

LOGIN = ("operator", "wide-open-no-more")
LONGEST_ARGUMENTS = 120
TASKS = {
    "plays.run": "control",
    "plays.resume": "plays",
    "rows.run_slice": "rows",
    "datasets.settle_page": "control",
    POSTS: "lanes",
}


class Flower:
    child: Child

    def __init__(self, port: int) -> None:
        self.at = f"127.0.0.1:{port}"

    def get(self, path: str, *, login: bool = True) -> httpx.Response:
        return httpx.get(
            f"http://{self.at}{path}", auth=LOGIN if login else None, trust_env=False, timeout=10.0
        )

    def page(self, path: str) -> str:
        """Its address as a browser is given it."""
        return f"http://{LOGIN[0]}:{LOGIN[1]}@{self.at}{path}"

    def tasks(self) -> list[dict[str, Any]]:
        return list(self.get("/api/tasks?limit=1000").json().values())

    def workers(self) -> set[str]:
        return {
            name.partition("@")[0]
            for name, alive in self.get("/api/workers?status=1").json().items()
            if alive
        }


@pytest.fixture
def flower(stack: StackUnderTest) -> Iterator[Flower]:
    port = free_port()
    env = dict(stack.child("rows").launch.env or {})
    env.pop("FLOWER_UNAUTHENTICATED_API", None)
    env["FLOWER_BASIC_AUTH"] = ":".join(LOGIN)
    found = Flower(port)
    found.child = stack.supervisor.launch(
        Launch(
            name="flower",
            command=[*PLAYLANE, "flower", "--port", str(port)],
            env=env,
            quiet=True,
            restart=True,
            ready=lambda: _answers(found),
            ready_timeout_s=60,
            tier=stack.supervisor.next_tier(),
        )
    )
    try:
        yield found
    finally:
        stack.supervisor.drop(found.child)


def _answers(flower: Flower) -> bool:
    try:
        return flower.get("/healthcheck").status_code == 200
    except httpx.HTTPError:
        return False


def test_flower_shows_roles_tasks_and_posts_to_whoever_may_see_them(
    stack: StackUnderTest, flower: Flower, tmp_path: Path
) -> None:
    """Workers are named by role, every kind of task has run where it belongs, lane posts have ended; arguments are
    short and hold neither rows nor secrets; without the login there is nothing to see."""
    for path in ("/", "/workers", "/tasks", "/api/workers", "/api/tasks"):
        assert flower.get(path, login=False).status_code == 401
    run = stack.start(30)
    stack.check(run)
    stack.until(lambda: flower.workers() >= set(ROLES), "all workers in Flower")

    def seen() -> set[str]:
        return {task["name"] for task in flower.tasks() if task["state"] == "SUCCESS"}

    stack.until(lambda: seen() >= set(TASKS), "all kinds of tasks in Flower")
    for task in flower.tasks():
        assert task["worker"].partition("@")[0] == TASKS.get(task["name"], task["worker"].partition("@")[0])
        said = f"{task['args']} {task['kwargs']} {task.get('result')}"
        assert len(said) <= LONGEST_ARGUMENTS, said
    everything = json.dumps(flower.tasks())
    assert f"{run.tag}/first" not in everything
    assert run.run_id in everything
    assert "flower_events_total" in flower.get("/metrics").text
    _look(flower, tmp_path)
    _dies_in_mid_run(stack, flower)


def _dies_in_mid_run(stack: StackUnderTest, flower: Flower) -> None:
    """It forgets what it saw; the run's own status doesn't need it."""
    stack.latency_ms(100)
    run = stack.start(60)
    stack.until_rows(run, 5)
    pid = flower.child.pid
    os.kill(pid, signal.SIGKILL)
    status = stack.check(run)
    assert sum(one.items for one in status.usage) == sum(stack.ledger(run).charged().values())
    stack.until(lambda: flower.child.pid != pid and _answers(flower), "Flower again")
    stack.until(lambda: flower.workers() >= set(ROLES), "all workers in Flower again")


def _look(flower: Flower, folder: Path) -> None:
    """In a browser: workers by role, tasks by name, and not a blank page."""
    workers = dom_of(flower.page("/workers"), folder / "profile")
    assert all(f"{role}@" in workers for role in ROLES)
    tasks = dom_of(flower.page("/tasks"), folder / "profile")
    assert POSTS in tasks
    picture = screenshot(flower.page("/workers"), folder / "profile", folder / "workers.png")
    assert different_lines(picture) > 20
