"""Runs of a stack under test: started, watched, and looked at through tables, ledger and Redis."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from itertools import pairwise
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx
import psycopg
import redis
from celery import Celery

from runtime.client import PlayClient
from runtime.model.run import ENDED_RUNS
from runtime.model.status import RunStatus
from tests.chaos.ledger import Ledger
from tests.chaos.plays import expected_items
from tests.chaos.processes import RUN_S, Processes
from workers.stack.servers import Servers
from workers.stack.supervisor import Supervisor

PLAY = "chaos"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedRun:
    """A run and what it must pay for. Its org is its own, so no earlier receipt helps it."""

    run_id: str
    org_id: str
    tag: str
    rows: int


class Runs(Processes):
    """What tests do to servers and provider, and what they ask of a run."""

    broker_url: str | None = None  # where that isn't Redis

    def __init__(self, supervisor: Supervisor, servers: Servers, api_url: str, said: StringIO) -> None:
        super().__init__(supervisor, said)
        self.servers = servers
        self.api_url = api_url

    def die_at_each(self, role: str, faults: Sequence[str], start: Callable[[], StartedRun]) -> StartedRun:
        """One life after the other meets one fault each and dies of it; the last one lives."""
        self.begin_life(role, faults[0])
        before = len(self.endings(role))
        run = start()
        for fault, following in pairwise([*faults, ""]):
            self.faults_for_next_life(role, following)
            pid = self.pid(role)
            with self.describing(run):
                self.until(lambda pid=pid: self.pid(role) != pid, f"a death at {fault}")
        assert self.endings(role)[before:] == ["was ended by SIGKILL"] * len(faults)
        return run

    def until_quiet(self, run: "StartedRun", seconds: float) -> None:
        """The provider has heard nothing of the run for so long."""
        seen, since = -1, time.monotonic()

        def quiet() -> bool:
            nonlocal seen, since
            entries = len(self.ledger(run).entries)
            if entries != seen:
                seen, since = entries, time.monotonic()
            return time.monotonic() - since > seconds

        self.until(quiet, "no more requests")

    def redis(self, database: int) -> redis.Redis:
        """0 broker, 1 results, 2 state."""
        return redis.Redis.from_url(_in_path(self.servers.redis_url, str(database)), decode_responses=True)

    def flush_all(self) -> None:
        with self.redis(0) as client:
            client.flushall()

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.servers.database_url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), values)
            return cursor.fetchall() if cursor.description else []

    def until_session_ended(self, role: str, pid: int) -> None:
        """A sweep has ended the session of a process that lives no more, or is frozen."""
        query = "select 1 from sessions where role = %s and pid = %s and ended_at is not null"
        self.until(lambda: self.sql(query, role, pid), f"the end of the session of {role} process {pid}")

    def latency_ms(self, value: float) -> None:
        self.control({"latency_ms": value})

    def control(self, changes: dict[str, Any]) -> None:
        httpx.post(f"{self.api_url}/_control", json=changes, trust_env=False).raise_for_status()

    # ---- runs

    def client(self, org_id: str = "default") -> PlayClient:
        return PlayClient(
            redis_url=self.servers.redis_url,
            database_url=self.servers.database_url,
            org_id=org_id,
            broker_url=self.broker_url,
        )

    def start(self, rows: int, *, again: StartedRun | None = None) -> StartedRun:
        """Start a run; `again` repeats an earlier run's input in its org."""
        tag = again.tag if again else token_hex(3)
        org_id = again.org_id if again else f"org-{tag}"
        with self.client(org_id) as client:
            run_id = client.enqueue(PLAY, {"tag": tag, "rows": rows})
        return StartedRun(run_id=run_id, org_id=org_id, tag=tag, rows=rows)

    def rows_ended(self, run: StartedRun) -> int:
        found = self.sql(
            "select count(*) from run_rows r join datasets d using (dataset_id)"
            " where d.run_id = %s and r.state not in ('pending', 'running', 'waiting')",
            run.run_id,
        )
        return found[0][0]

    def until_rows(self, run: StartedRun, count: int) -> None:
        with self.describing(run):
            self.until(lambda: self.rows_ended(run) >= count, f"{count} rows of {run.run_id}")

    def until_sent(self, run: StartedRun, requests: int) -> None:
        """So many requests of the run have been answered by the provider."""
        with self.describing(run):
            self.until(lambda: len(self.ledger(run).entries) >= requests, f"{requests} requests")

    @contextmanager
    def sender(self) -> Iterator[Callable[..., None]]:
        """`send(task, queue, **kwargs)`: a message as anybody could send it."""
        with Celery(broker=self.servers.redis_url) as sender:
            yield lambda task, queue, **kwargs: sender.send_task(
                task, queue=queue, kwargs=kwargs, ignore_result=True
            )

    def ask_to_settle(self, run: StartedRun, send: Callable[..., None]) -> bool:
        """Ask control to settle every page that is out; True if the run has ended."""
        pages = self.sql(
            "select dataset_id, page from pages join datasets using (dataset_id)"
            " where run_id = %s and pages.state = 'out'",
            run.run_id,
        )
        for dataset, page in pages:
            send("datasets.settle_page", "control", run_id=run.run_id, dataset_id=dataset, page=page)
        return self.sql("select state from runs where run_id = %s", run.run_id) == [("completed",)]

    def ledger(self, run: StartedRun) -> Ledger:
        return Ledger.of_run(self.api_url, run.run_id)

    def ledger_of(self, run_id: str) -> Ledger:
        return Ledger.of_run(self.api_url, run_id)

    def until_ended(self, run: StartedRun, timeout_s: float = RUN_S) -> RunStatus:
        def look() -> Any:
            status = client.status(run.run_id)
            return status if status.state in ENDED_RUNS else None

        with self.client() as client, self.describing(run):
            return self.until(look, f"the end of {run.run_id}", timeout_s)

    def _left_behind(self) -> list[str]:
        """Leases that somebody alive holds, batches, and keys of ours that would live for ever.

        A queued lease of a dead session holds nothing: whoever claims it next has it, and it expires.
        """
        found: list[str] = []
        with self.redis(2) as state, self.redis(1) as results:
            for client in (state, results):
                for key in client.scan_iter(count=1_000):
                    left_s = client.ttl(key)
                    held = key.startswith("lease:") and self._is_held(client, key)
                    if left_s == -1 or held or key.startswith("batch:") or key == "batches":
                        found.append(f"{key} ttl={left_s}")
        return found

    def _is_held(self, client: "redis.Redis", key: str) -> bool:
        session, state = client.hmget(key, "session", "state")  # type: ignore[misc]
        return state == "dispatched" or bool(session and client.exists(f"session:{session}"))

    def _queues(self) -> dict[str, int]:
        with self.redis(0) as broker:
            return {key: broker.llen(key) for key in broker.scan_iter(_type="list")}  # type: ignore[misc]

    @contextmanager
    def describing(self, run: StartedRun) -> Iterator[None]:
        """A failure inside says where the run stands."""
        try:
            yield
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe(run)}") from None

    def describe(self, run: StartedRun) -> str:
        """What the tables and the ledger say, for a failed test."""
        ledger = self.ledger(run)
        parts: dict[str, Any] = {
            "run": self.sql(
                "select state, attempt, session_id, wakes, wakes_seen, error from runs where run_id = %s",
                run.run_id,
            ),
            "datasets": self.sql(
                "select dataset_id, key, state, pages_seeded, pages_total, pages_settled, next_page, claimed_from"
                " from datasets where run_id = %s order by 1",
                run.run_id,
            ),
            "open slices": self.sql(
                "select s.page, s.slice, s.state, s.session_id, s.fence, s.sends, s.sent_at::text, s.epoch"
                " from slices s join datasets d using (dataset_id) where d.run_id = %s and s.state = 'open'",
                run.run_id,
            ),
            "rows": self.sql(
                "select d.key, r.state, count(*) from run_rows r join datasets d using (dataset_id)"
                " where d.run_id = %s group by 1, 2 order by 1",
                run.run_id,
            ),
            "sessions": self.sql(
                "select session_id, expires_at::text, ended_at::text from sessions order by started_at desc limit 6"
            ),
            "charged twice": ledger.charged_twice()[:10],
            "under two keys": ledger.sent_under_two_keys()[:10],
            "missing": sorted(expected_items(run.tag, run.rows) - set(ledger.charged()))[:10],
            "redis": self._left_behind()[:20],
            "processes": {name: child.pid for name, child in self._children.items()},
            "queues": self._queues(),
        }
        return "\n".join(f"{name}: {json.dumps(value, default=str)}" for name, value in parts.items())


def _in_path(url: str, path: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{path}"))
