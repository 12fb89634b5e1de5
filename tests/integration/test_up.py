"""`up` as a user meets it: one process in the foreground, signals, exit codes. Workers are stand-ins."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
import redis

from tests.waiting import wait_until, wait_until_async
from workers.stack.folders import temporary_state

ROOT = Path(__file__).resolve().parents[2]
UP = """
import sys
from pathlib import Path
from workers.stack import stack
from workers.cli.up import run_up
stack.PLAYLANE = (sys.executable, "-m", "tests.integration.fake_stack")
stack.API = (sys.executable, "-m", "tests.integration.fake_stack", "api")
sys.exit(run_up(Path(sys.argv[1]), stack.Counts(rows=2), fast=True))
"""


class Up:
    """A running `up` and what it wrote so far."""

    def __init__(self, state: Path, output: Path) -> None:
        self.output = output
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PLAYLANE_")}
        with output.open("wb") as written:
            self.process = subprocess.Popen(
                [sys.executable, "-c", UP, str(state)],
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
                cwd=ROOT,
                env=environ,
            )

    def said(self, pattern: str) -> re.Match[str] | None:
        return re.search(pattern, self.output.read_text())

    def wait_for(self, pattern: str, timeout_s: float = 20) -> re.Match[str]:
        found = wait_until(lambda: self.said(pattern) or self.process.poll() is not None, timeout_s, pattern)
        assert isinstance(found, re.Match), f"it ended without {pattern!r}:\n{self.output.read_text()}"
        return found

    def children(self) -> list[tuple[int, str]]:
        listed = subprocess.run(
            ["ps", "-e", "-ww", "-o", "pid=,ppid=,stat=,args="], capture_output=True, text=True, check=True
        ).stdout
        rows = [line.split(None, 3) for line in listed.splitlines()]
        mine = [row for row in rows if int(row[1]) == self.process.pid and not row[2].startswith("Z")]
        return [(int(row[0]), row[3]) for row in mine]


@contextmanager
def up(tmp_path: Path) -> Iterator[Up]:
    with temporary_state() as state:
        running = Up(state, tmp_path / "output")
        try:
            yield running
        finally:
            if running.process.poll() is None:
                running.process.terminate()
            running.process.wait(20)


@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM])
def test_up_tells_where_things_are_and_stops_cleanly(tmp_path: Path, asked: signal.Signals) -> None:
    with up(tmp_path) as stack:
        stack.wait_for("Ctrl-C")
        env_file = Path(stack.wait_for(r"start a run     \. (\S+) ")[1])
        assert env_file.stat().st_mode & 0o777 == 0o600
        assert stack.said(r"Flower          http://127\.0\.0\.1:\d+")
        assert stack.said(r"execution API   http://127\.0\.0\.1:\d+")
        assert stack.said(r"\d\d:\d\d:\d\d rows-2   \| playlane ready role=rows")
        pids = [pid for pid, _ in stack.children()]
        assert len(pids) == 10

        stack.process.send_signal(asked)

        assert stack.process.wait(20) == 0
        assert stack.said("stopped; nothing is left running")
        assert not env_file.exists()
        for pid in pids:
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)


def test_a_killed_worker_comes_back_and_a_killed_server_ends_the_stack(tmp_path: Path) -> None:
    with up(tmp_path) as stack:
        stack.wait_for("Ctrl-C")

        def child(args: str) -> int:
            return next((pid for pid, found in stack.children() if args in found), 0)

        first = child("worker lanes")
        os.kill(first, signal.SIGKILL)
        stack.wait_for(r"lanes was ended by SIGKILL; starting it again in 0\.5 s")
        wait_until(lambda: child("worker lanes") not in (0, first), 10, "another lane worker")

        os.kill(child("postgres"), signal.SIGKILL)

        assert stack.process.wait(20) == 1
        stack.wait_for("postgres was ended by SIGKILL, and nothing can go on without it")


def test_a_fresh_database_is_migrated_and_private(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        assert connection.execute("select to_regclass('runs')::text").fetchone() == ("runs",)
        connection.execute("create table only_here (id int)")


def test_the_next_database_is_clean_again(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        assert connection.execute("select to_regclass('only_here')").fetchone() == (None,)


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_has_an_empty_redis(redis_url: str, turn: int) -> None:
    with redis.Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0
        client.set("mine", turn)


async def test_waiting_takes_sync_and_async_predicates() -> None:
    answers = iter([0, 0, 7])

    async def answer() -> int:
        return next(answers)

    assert await wait_until_async(answer, what="seven") == 7
    assert await wait_until_async(lambda: "now") == "now"
    with pytest.raises(AssertionError, match="the moon did not come true"):
        await wait_until_async(lambda: False, timeout_s=0, what="the moon")
