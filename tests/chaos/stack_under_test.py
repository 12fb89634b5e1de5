"""A whole stack of its own, with short leases, that tests may kill, freeze, empty and starve."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from io import StringIO
from itertools import pairwise
from pathlib import Path
from secrets import token_hex
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import httpx
import psycopg
import redis
from celery import Celery

from runtime.client import PlayClient
from runtime.model.run import ENDED_RUNS, RunState
from runtime.model.status import RunStatus
from tests.chaos.ledger import Ledger
from tests.chaos.plays import expected_items
from tests.waiting import wait_until
from workers.stack.child import Child
from workers.stack.console import Console
from workers.stack.folders import temporary_state
from workers.stack.servers import Servers, running_servers
from workers.stack.stack import Counts, start_stack
from workers.stack.supervisor import Supervisor

ROLES = ("control", "plays", "rows", "lanes")
LIMITS: dict[str, Any] = {
    "session_ttl_s": 3,
    "heartbeat_s": 0.75,
    "sweep_s": 0.5,
    "slice_rows": 10,
    "slices_per_page": 2,
    "pages_in_flight": 3,
    "suspend_grace_s": 0.2,
    "poll_first_ms": 200,
    "poll_max_ms": 1_000,
    "repost_after_ms": 1_500,
    "repost_max_ms": 5_000,
    "sigterm_grace_s": 10,
}
PLAY = "chaos"
RUN_S = 60.0
READY_S = 60.0
LEFT_S = 15.0
CALM_LATENCY_MS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedRun:
    """A run and what it must pay for. Its org is its own, so no earlier receipt helps it."""

    run_id: str
    org_id: str
    tag: str
    rows: int


class StackUnderTest:
    """Servers, API and one worker of each role, seen from outside."""

    def __init__(self, supervisor: Supervisor, servers: Servers, api_url: str, said: StringIO) -> None:
        self.supervisor = supervisor
        self._said = said
        self.servers = servers
        self.api_url = api_url
        self._children = {child.name: child for child in supervisor._children}
        self.workers = tuple(name for name in self._children if name.partition("-")[0] in ROLES)
        for name in self.workers:
            child = self._children[name]
            # Each role's environment is its own and read anew at every start: faults are for one life.
            child.launch = replace(child.launch, env=dict(child.launch.env or {}))

    # ---- processes

    def child(self, name: str) -> Child:
        return self._children[name]

    def pid(self, role: str) -> int:
        return self.child(role).pid

    def signal(self, role: str, number: signal.Signals) -> int:
        """Send a signal to the role's process; returns its pid."""
        pid = self.pid(role)
        os.kill(pid, number)
        return pid

    def kill(self, role: str) -> int:
        return self.signal(role, signal.SIGKILL)

    def forgive(self) -> bool:
        """Forget deaths: many in a minute are this test's doing. Fails if the supervisor gave up."""
        assert self.supervisor.failure is None, self.supervisor.failure
        for child in self._children.values():
            child.deaths.clear()
        return True

    def until(self, predicate: Callable[[], Any], what: str, timeout_s: float = RUN_S) -> Any:
        return wait_until(lambda: self.forgive() and predicate(), timeout_s, what)

    def until_restarted(self, role: str, old_pid: int) -> None:
        """Another process of the role is ready."""
        self.until(lambda: self.pid(role) != old_pid, f"another {role} process than {old_pid}", READY_S)
        self.until_ready(role)

    def until_ready(self, *roles: str) -> None:
        for role in roles or self.workers:
            child = self.child(role)
            self.until(lambda child=child: child.alive() and child.is_ready(), f"{role} ready", READY_S)

    def faults_for_next_life(self, role: str, faults: str) -> None:
        """`faults` meet the next process of the role; "" is a life without."""
        env = self.child(role).launch.env
        assert isinstance(env, dict)
        env["PLAYLANE_FAULTS"] = faults

    def begin_life(self, role: str, faults: str) -> int:
        """Replace the role's process by one that will die at a fault point; only that one will."""
        self.faults_for_next_life(role, faults)
        old = self.kill(role)
        self.until(lambda: self.pid(role) != old, f"a {role} process with faults", READY_S)
        self.faults_for_next_life(role, "")
        self.until_ready(role)
        return self.pid(role)

    def endings(self, name: str) -> list[str]:
        """How the processes of that name have ended so far, as the supervisor tells it."""
        return [
            line.partition(f"{name} ")[2].partition(";")[0]
            for line in self._said.getvalue().splitlines()
            if f"{name} was ended by" in line or f"{name} ended with" in line
        ]

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

    @contextmanager
    def second(self, role: str) -> Iterator[Child]:
        """Another worker of the role, stopped afterwards."""
        launch = replace(self.child(role).launch, name=f"{role}-2", log=None)
        child = self.supervisor.launch(launch)
        self._children[child.name] = child
        try:
            yield child
        finally:
            del self._children[child.name]
            self.supervisor.drop(child)

    def postgres_pids(self) -> list[int]:
        """The server and its children; each of them runs statements."""
        server = self.pid("postgres")
        listed = subprocess.run(
            ["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True
        ).stdout
        pairs = [tuple(map(int, line.split())) for line in listed.splitlines()]
        return [server, *(pid for pid, parent in pairs if parent == server)]

    # ---- servers and the provider

    def pause_s(self, seconds: float) -> None:
        """Let a trouble last: nothing is to come true meanwhile."""
        ends = time.monotonic() + seconds
        self.until(lambda: time.monotonic() > ends, "the end of a pause", seconds + 5)

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

    def latency_ms(self, value: float) -> None:
        self.control({"latency_ms": value})

    def control(self, changes: dict[str, Any]) -> None:
        httpx.post(f"{self.api_url}/_control", json=changes, trust_env=False).raise_for_status()

    # ---- runs

    def client(self, org_id: str = "default") -> PlayClient:
        return PlayClient(
            redis_url=self.servers.redis_url, database_url=self.servers.database_url, org_id=org_id
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

    def until_ended(self, run: StartedRun, timeout_s: float = RUN_S) -> RunStatus:
        def look() -> Any:
            status = client.status(run.run_id)
            return status if status.state in ENDED_RUNS else None

        with self.client() as client, self.describing(run):
            return self.until(look, f"the end of {run.run_id}", timeout_s)

    # ---- what must be true afterwards

    def check(self, run: StartedRun, *, one_key: bool = True, timeout_s: float = RUN_S) -> RunStatus:
        """The run ends right, whatever happened: every row once, every item paid once, nothing left behind.

        `one_key`: no item was ever worked on under a second batch key.
        """
        status = self.until_ended(run, timeout_s)
        assert status.state is RunState.COMPLETED, self.describe(run)
        self._check_rows(run, status)
        self._check_sheet(run)
        ledger = self.ledger(run)
        assert ledger.charged_twice() == [], self.describe(run)
        assert set(ledger.charged()) == expected_items(run.tag, run.rows)
        if one_key:
            assert ledger.sent_under_two_keys() == [], self.describe(run)
        receipts = self.sql(
            "select state, count(*) from receipts where org_id = %s group by state", run.org_id
        )
        assert receipts == [("completed", len(expected_items(run.tag, run.rows)))]
        self.until(lambda: self._left_behind() == [], "nothing left in Redis", LEFT_S)
        return status

    def _check_rows(self, run: StartedRun, status: RunStatus) -> None:
        wanted = {"first": run.rows, "second": run.rows // 2}
        assert (status.result["first"], status.result["second"]) == tuple(wanted.values())
        assert {dataset.key: dataset.completed for dataset in status.datasets} == wanted
        assert {(d.failed, d.cancelled, d.superseded, d.duplicates) for d in status.datasets} == {(0,) * 4}
        assert all(dataset.pages_settled == dataset.pages_total for dataset in status.datasets)
        rows = self.sql(
            "select d.key, r.state, count(*) from run_rows r join datasets d using (dataset_id)"
            " where d.run_id = %s group by 1, 2 order by 1",
            run.run_id,
        )
        assert rows == [(key, "completed", count) for key, count in wanted.items()]
        held = self.sql(
            "select count(*) from slices s join datasets d using (dataset_id)"
            " where d.run_id = %s and s.state <> 'done'",
            run.run_id,
        )
        assert held == [(0,)]

    def _check_sheet(self, run: StartedRun) -> None:
        sheets = self.sql("select data from sheet_rows where org_id = %s", run.org_id)
        assert len(sheets) == run.rows + run.rows // 2
        for (data,) in sheets:
            assert data["looked_up"] == f"v:{data['name']}"
            assert data["again"] == f"v:2:{data['name']}"

    def _left_behind(self) -> list[str]:
        """Leases, batches, and keys of ours that would live for ever."""
        found: list[str] = []
        with self.redis(2) as state, self.redis(1) as results:
            for client in (state, results):
                for key in client.scan_iter(count=1_000):
                    left_s = client.ttl(key)
                    if left_s == -1 or key.startswith(("lease:", "batch:")) or key == "batches":
                        found.append(f"{key} ttl={left_s}")
        return found

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


@contextmanager
def stack_under_test(
    *, logs: Path | None = None, limits: dict[str, Any] | None = None, counts: Counts | None = None
) -> Iterator[StackUnderTest]:
    """Fresh servers and workers, none shared: FLUSHALL and a frozen Postgres would hit neighbours."""
    with ExitStack() as cleanup:
        said = StringIO()
        state = cleanup.enter_context(temporary_state())
        supervisor = Supervisor(Console(said))
        cleanup.callback(supervisor.stop)
        servers = cleanup.enter_context(
            running_servers(state, fast=True, supervisor=supervisor, environ={}, logs=logs)
        )
        ports = start_stack(
            supervisor,
            servers,
            counts=counts,
            flower=False,
            quiet=True,
            logs=logs,
            env={
                "PLAYLANE_PLAY_MODULES": "tests.chaos.plays",
                "PLAYLANE_LIMITS": json.dumps(LIMITS | (limits or {})),
                "PLAYLANE_FAULTS": "",
            },
            api_args=("--latency-ms", str(CALM_LATENCY_MS), "--ledger", str(state / "ledger.jsonl")),
        )
        assert ports.api_url is not None
        stack = StackUnderTest(supervisor, servers, ports.api_url, said)
        stack.control({"metadata": {"country_facts": {"batch": None}}})
        supervisor.start_watching()
        yield stack


def _in_path(url: str, path: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{path}"))


def stop_all(pids: Sequence[int]) -> None:
    """SIGSTOP; who is gone already needs none."""
    _signal_all(pids, signal.SIGSTOP)


def continue_all(pids: Sequence[int]) -> None:
    _signal_all(pids, signal.SIGCONT)


def _signal_all(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
