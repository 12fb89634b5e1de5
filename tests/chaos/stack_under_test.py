"""A whole stack of its own, with short leases, that tests may kill, freeze, empty and starve."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg

from runtime.model.run import RunState
from runtime.model.status import RunStatus
from tests.chaos.plays import expected_items
from tests.chaos.processes import RUN_S
from tests.chaos.runs import Runs, StartedRun
from workers.stack.console import Console
from workers.stack.folders import temporary_state
from workers.stack.servers import Servers, running_servers
from workers.stack.stack import Counts, start_stack
from workers.stack.supervisor import Supervisor

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
    "hold_ms": 1_000,
}
METADATA = {
    "country_facts": {"batch": None},
    "echo_single": {"queueHints": [{"provider": "slow", "limit": 10, "perMs": 1_000, "counts": "requests"}]},
}
LEFT_S = 15.0
PLAY_MODULES = tuple(
    f"tests.chaos.{name}" for name in ("plays", "rerun_plays", "value_plays", "process_plays", "woken_plays")
)
CALM_LATENCY_MS = 30.0


class StackUnderTest(Runs):
    """Seen from outside; `check` is the verdict on a run."""

    files: Path  # the workers' workspace
    probes: dict[str, int]  # ports by worker

    def check(self, run: StartedRun, *, one_key: bool = True, timeout_s: float = RUN_S) -> RunStatus:
        """The run ends right, whatever happened: every row once, every item paid once, nothing left behind.

        `one_key`: no item was ever worked on under a second batch key.
        """
        status = self.until_ended(run, timeout_s)
        with self.describing(run):
            assert status.state is RunState.COMPLETED
            self._check_rows(run, status)
            self._check_sheet(run)
            self._check_paid(run, one_key)
            self.until(lambda: self._left_behind() == [], "nothing left in Redis", LEFT_S)
        return status

    def _check_paid(self, run: StartedRun, one_key: bool) -> None:
        ledger, expected = self.ledger(run), expected_items(run.tag, run.rows)
        assert ledger.charged_twice() == []
        assert set(ledger.charged()) == expected
        if one_key:
            assert ledger.sent_under_two_keys() == []
        query = "select state, count(*) from receipts where org_id = %s group by state"
        assert self.sql(query, run.org_id) == [("completed", len(expected))]

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


def _keep_commits(servers: Servers) -> None:
    """A killed server forgets nothing that it has committed, though its files aren't synced."""
    with psycopg.connect(servers.database_url, autocommit=True) as connection:
        found = connection.execute("select current_database()").fetchone()
        assert found is not None
        connection.execute(f'alter database "{found[0]}" set synchronous_commit = on'.encode())


@contextmanager
def stack_under_test(
    *,
    logs: Path | None = None,
    limits: dict[str, Any] | None = None,
    counts: Counts | None = None,
    broker_url: str = "",
) -> Iterator[StackUnderTest]:
    """Fresh servers and workers, none shared: FLUSHALL and a frozen Postgres would hit neighbours."""
    with ExitStack() as cleanup:
        said = StringIO()
        state = cleanup.enter_context(temporary_state())
        files = state / "files"
        files.mkdir()
        supervisor = Supervisor(Console(said))
        cleanup.callback(supervisor.stop)
        servers = cleanup.enter_context(
            running_servers(state, fast=True, supervisor=supervisor, environ={}, logs=logs)
        )
        _keep_commits(servers)
        ports = start_stack(
            supervisor,
            servers,
            counts=counts,
            flower=False,
            quiet=True,
            probes=True,
            logs=logs,
            env={
                "PLAYLANE_PLAY_MODULES": ",".join(PLAY_MODULES),
                "PLAYLANE_EGRESS_ALLOW": "127.0.0.1",
                "PLAYLANE_WORKSPACE": str(files),
                "PLAYLANE_LIMITS": json.dumps(LIMITS | (limits or {})),
                "PLAYLANE_FAULTS": "",
            }
            | ({"PLAYLANE_BROKER_URL": broker_url} if broker_url else {}),
            api_args=("--latency-ms", str(CALM_LATENCY_MS), "--ledger", str(state / "ledger.jsonl")),
        )
        assert ports.api_url is not None
        stack = StackUnderTest(supervisor, servers, ports.api_url, said)
        stack.files = files
        stack.broker_url = broker_url or None
        stack.probes = dict(ports.probes)
        stack.control({"metadata": METADATA})
        supervisor.start_watching()
        yield stack
