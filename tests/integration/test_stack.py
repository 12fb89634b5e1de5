"""The supervisor and the embedded servers, seen from outside: real processes, real signals."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from runtime.errors import ChildNotReadyError, ServersMissingError, StackError, StackStoppedError
from tests.waiting import wait_until
from workers.stack.account import choose_account
from workers.stack.binaries import Prefer, find_postgres, usual_places
from workers.stack.child import Launch
from workers.stack.console import Console
from workers.stack.folders import temporary_state
from workers.stack.servers import running_servers
from workers.stack.supervisor import Supervisor

STUBBORN = "trap '' INT TERM; echo deaf; while :; do sleep 600; done"
ROOT = Path(__file__).resolve().parents[2]


def running(pid: int) -> bool:
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return bool(state.stdout.strip()) and not state.stdout.startswith("Z")


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    with Path(os.devnull).open("w") as nowhere, Supervisor(Console(nowhere)) as supervisor:
        yield supervisor


@pytest.fixture
def state() -> Iterator[Path]:
    with temporary_state() as state:
        yield state


def sh(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


@pytest.mark.parametrize("prefer", ["wheel", "system", "auto"])
def test_both_servers_answer_and_nothing_is_left(state: Path, prefer: Prefer) -> None:
    with Path(os.devnull).open("w") as nowhere:
        supervisor = Supervisor(Console(nowhere))
        try:
            with running_servers(
                state, fast=True, prefer=prefer, supervisor=supervisor, environ={}
            ) as servers:
                pids = supervisor.pids()
                with psycopg.connect(servers.database_url) as connection:
                    assert connection.execute("show max_connections").fetchone() == ("200",)
                    assert connection.execute("select current_database()").fetchone() == ("playlane",)
                with redis.Redis.from_url(servers.redis_url) as client:
                    config = client.config_get("maxmemory-policy")
                    assert config == {"maxmemory-policy": "noeviction"}
                assert len(servers.notes) == 2
        except ServersMissingError as error:
            if os.environ.get("CI") and prefer != "system":
                raise
            pytest.skip(str(error))
        finally:
            supervisor.stop()
    assert set(pids) == {"postgres", "redis"}
    assert not any(running(pid) for pid in pids.values())


def test_no_password_is_seen_in_the_process_list_or_needed_to_be_guessed(state: Path) -> None:
    with running_servers(state, fast=True, environ={}) as servers:
        listed = subprocess.run(
            ["ps", "-e", "-ww", "-o", "args="], capture_output=True, text=True, check=True
        ).stdout
        for url in (servers.database_url, servers.redis_url):
            password = url.split("@")[0].rsplit(":", 1)[1]
            assert len(password) == 32
            assert password not in listed
        with (
            pytest.raises(redis.AuthenticationError),
            redis.Redis.from_url("redis://" + servers.redis_url.split("@")[1]) as stranger,
        ):
            stranger.ping()


def test_a_second_stack_in_one_place_runs_beside_the_first_and_data_outlives_a_stop(state: Path) -> None:
    with running_servers(state, fast=True, environ={}) as first:
        with psycopg.connect(first.database_url) as connection:
            connection.execute("create table kept (id int)")
        with (
            running_servers(state, fast=True, environ={}) as second,
            psycopg.connect(second.database_url) as other,
        ):
            assert other.execute("select to_regclass('kept')").fetchone() == (None,)
    with (
        running_servers(state, fast=True, environ={}) as again,
        psycopg.connect(again.database_url) as connection,
    ):
        assert connection.execute("select to_regclass('kept')::text").fetchone() == ("kept",)


SUPERVISING = """
import json, sys
from pathlib import Path
from workers.stack.servers import running_servers
from workers.stack.supervisor import Supervisor
supervisor = Supervisor()
with running_servers(Path(sys.argv[1]), fast=True, supervisor=supervisor, environ={}):
    supervisor.spawn("deaf", ["/bin/sh", "-c", sys.argv[2]], ready_line="deaf", quiet=True)
    print(json.dumps(supervisor.pids()), flush=True)
    supervisor.watch()
"""


def test_kill_9_of_the_supervising_process_takes_all_children_with_it(state: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISING, str(state), STUBBORN], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        pids = json.loads(process.stdout.readline()).values()
        assert len(pids) == 3
        assert all(running(pid) for pid in pids)
        process.kill()
    wait_until(lambda: not any(running(pid) for pid in pids), 10, "all children gone")
    pid_files = list(state.glob("pg*/data/postmaster.pid"))
    assert not pid_files, "PostgreSQL was not shut down cleanly"
    with running_servers(state, fast=True, environ={}):
        assert not list(state.glob("*spare*[0-9]")), "the folder was not free again"


def test_a_stubborn_child_is_killed_after_its_grace(supervisor: Supervisor) -> None:
    child = supervisor.spawn("deaf", sh(STUBBORN), stop_s=0.2, ready_line="deaf")
    pid = child.pid
    supervisor.stop()
    assert not running(pid)
    assert child.ending() == "was ended by SIGKILL"


def test_a_second_request_to_stop_cuts_the_grace_short(supervisor: Supervisor) -> None:
    child = supervisor.spawn("deaf", sh(STUBBORN), stop_s=3600, ready_line="deaf")
    supervisor.ask_stop()
    supervisor.ask_stop()
    supervisor.stop()
    assert child.ending() == "was ended by SIGKILL"


def test_children_stop_in_reverse_order_each_by_its_signal(supervisor: Supervisor, tmp_path: Path) -> None:
    def says(name: str, word: str) -> list[str]:
        # Not a shell's trap: a shell that was begun in the background may not trap SIGINT.
        lines = (
            "import signal, sys, time",
            "def end(*_):",
            f"    open({str(tmp_path / 'order')!r}, 'a').write('{name}\\n')",
            "    sys.exit()",
            f"signal.signal(signal.SIG{word}, end)",
            "print('up', flush=True)",
            "while True:",
            "    time.sleep(0.01)",
        )
        return [sys.executable, "-c", "\n".join(lines)]

    supervisor.spawn("database", says("database", "INT"), stop_signal=signal.SIGINT, ready_line="up")
    supervisor.spawn("worker", says("worker", "TERM"), ready_line="up")
    supervisor.stop()
    assert (tmp_path / "order").read_text().split() == ["worker", "database"]


def test_a_dead_worker_is_started_again_under_another_pid(supervisor: Supervisor, tmp_path: Path) -> None:
    log = tmp_path / "rows.log"
    supervisor.spawn(
        "rows", sh("echo up; exec sleep 600"), restart=True, ready_line="up", log=log, quiet=True
    )
    supervisor.start_watching()
    first = supervisor.pids()["rows"]
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: supervisor.pids().get("rows", first) != first, 5, "another pid")
    wait_until(lambda: log.read_text() == "up\nup\n", 5, "both starts logged")
    assert supervisor.failure is None


def test_a_worker_that_keeps_dying_stops_all_with_its_last_lines() -> None:
    ticks = iter(range(0, 10_000, 3))
    # Each look at the clock is 3 s later: back-offs pass without waiting for them.
    with (
        Path(os.devnull).open("w") as nowhere,
        Supervisor(Console(nowhere), clock=lambda: next(ticks)) as supervisor,
    ):
        supervisor.spawn(
            "rows",
            sh("echo up; echo out of luck; exit 7"),
            restart=True,
            ready_line="up",
            ready_timeout_s=999,
        )
        reason = supervisor.watch()
    assert reason is not None
    assert reason.startswith("rows died 5 times within 60 s")
    assert "out of luck" in reason


def test_without_its_database_nothing_goes_on(supervisor: Supervisor) -> None:
    child = supervisor.spawn("postgres", sh("echo up; exec sleep 600"), ready_line="up")
    os.kill(child.pid, signal.SIGKILL)
    assert supervisor.watch() == (
        "postgres was ended by SIGKILL, and nothing can go on without it: everything stops"
    )


def test_a_child_that_dies_or_stays_silent_while_starting_is_told_with_its_last_lines(
    supervisor: Supervisor,
) -> None:
    with pytest.raises(ChildNotReadyError, match=r"api ended with exit code 3 .*\n  no such port"):
        supervisor.spawn("api", sh("echo no such port; exit 3"), ready_line="never")
    with pytest.raises(ChildNotReadyError, match="flower was not ready within 0 s"):
        supervisor.spawn("flower", sh("exec sleep 600"), ready=lambda: False, ready_timeout_s=0.05)


def test_a_stop_asked_while_starting_ends_the_start(supervisor: Supervisor) -> None:
    child = supervisor.launch(
        Launch(name="slow", command=sh("exec sleep 600"), ready_line="never"), wait=False
    )
    supervisor.ask_stop()
    with pytest.raises(StackStoppedError):
        supervisor.wait_ready(child)
    with pytest.raises(StackStoppedError):
        supervisor.spawn("late", sh("exit 0"))


def test_two_children_of_one_name_are_refused(supervisor: Supervisor) -> None:
    supervisor.spawn("rows", sh("exec sleep 600"))
    with pytest.raises(StackError, match="rows"):
        supervisor.spawn("rows", sh("exec sleep 600"))


def test_a_grandchild_goes_with_its_parent(supervisor: Supervisor, tmp_path: Path) -> None:
    supervisor.spawn(
        "pool", sh(f"sleep 600 & echo $! > {tmp_path}/pid; echo up; wait"), restart=True, ready_line="up"
    )
    grandchild = int((tmp_path / "pid").read_text())
    supervisor.stop()
    wait_until(lambda: not running(grandchild), 5, "the grandchild gone")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs another account")
def test_root_falls_back_to_a_user_namespace_where_nobody_cannot_reach(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    program = find_postgres(usual_places()).program
    assert choose_account(program, tmp_path).note in {"in a user namespace"}
