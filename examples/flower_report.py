"""What stock Flower shows of a stack, read through its HTTP API."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from broker_config.queues import ROLES
from runtime.errors import ServiceUnreachableError

POSTS = "lanes.execute"
POSTS_READ = 10_000
WAIT_S = 15.0
POLL_S = 0.25
TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowerReport:
    """Live workers by role, and lane posts that ended well."""

    workers: Mapping[str, int]
    posts_succeeded: int

    @property
    def complete(self) -> bool:
        """Every role has a worker, and the lanes have answered posts."""
        return all(self.workers.get(role) for role in ROLES) and self.posts_succeeded > 0

    def line(self) -> str:
        """`Flower: control 1, plays 1, rows 1, lanes 1; 143 lane posts succeeded`."""
        workers = ", ".join(f"{role} {self.workers.get(role, 0)}" for role in ROLES)
        return f"Flower: workers {workers}; {self.posts_succeeded:,} lane posts succeeded"


def read_report(flower_url: str, *, wait_s: float = WAIT_S) -> FlowerReport:
    """The report, read again until it is complete or `wait_s` is over: events take a moment to arrive."""
    deadline = time.monotonic() + wait_s
    # The stack is on this machine: no proxy stands between.
    with httpx.Client(base_url=flower_url, timeout=TIMEOUT_S, trust_env=False) as http:
        report = _report(http)
        while not report.complete and time.monotonic() < deadline:
            time.sleep(POLL_S)
            report = _report(http)
    return report


def active_tasks(flower_url: str) -> int:
    """Tasks that workers have right now, asked anew of every worker."""
    with httpx.Client(base_url=flower_url, timeout=TIMEOUT_S, trust_env=False) as http:
        workers = _read(http, "/api/workers", refresh="1")
    return sum(len(worker.get("active") or ()) for worker in workers.values())


def workers_by_role(alive: Mapping[str, bool]) -> dict[str, int]:
    """Live workers by role, from names such as `rows-2@host`."""
    roles = [name.partition("@")[0].partition("-")[0] for name, lives in alive.items() if lives]
    return {role: roles.count(role) for role in ROLES}


def _report(http: httpx.Client) -> FlowerReport:
    alive = _read(http, "/api/workers", status="true")
    posts = _read(http, "/api/tasks", taskname=POSTS, state="SUCCESS", limit=str(POSTS_READ))
    return FlowerReport(workers=workers_by_role(alive), posts_succeeded=len(posts))


def _read(http: httpx.Client, path: str, **query: str) -> dict[str, Any]:
    try:
        answer = http.get(path, params=query)
        answer.raise_for_status()
    except httpx.HTTPError as error:
        raise ServiceUnreachableError(f"Flower did not answer {path}: {error}") from error
    return answer.json()
