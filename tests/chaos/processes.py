"""The processes of a stack under test: killed, frozen, told to stop, or sent to die at a named point."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

from tests.waiting import wait_until
from workers.stack.child import Child
from workers.stack.stack import PROBE_VARIABLE
from workers.stack.supervisor import Supervisor

ROLES = ("control", "plays", "rows", "lanes")
RUN_S = 60.0
READY_S = 60.0


class Processes:
    """Servers, API and workers, each by its name."""

    def __init__(self, supervisor: Supervisor, said: StringIO) -> None:
        self.supervisor = supervisor
        self._said = said
        self._children = {child.name: child for child in supervisor._children}
        self.workers = tuple(name for name in self._children if name.partition("-")[0] in ROLES)
        for name in self.workers:
            child = self._children[name]
            # Each role's environment is its own and read anew at every start: faults are for one life.
            child.launch = replace(child.launch, env=dict(child.launch.env or {}))

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

    @contextmanager
    def second(self, role: str) -> Iterator[Child]:
        """Another worker of the role, stopped afterwards."""
        first = self.child(role).launch
        env = {**(first.env or {}), PROBE_VARIABLE: "0"}  # the first one's port is taken
        launch = replace(first, name=f"{role}-2", log=None, env=env)
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

    @contextmanager
    def without_postgres(self) -> Iterator[None]:
        """Kill the server and all its children; it is started again on the same data afterwards."""
        child = self.child("postgres")
        command = [str(part) for part in child.launch.command]
        pids = self.postgres_pids()
        child.settled = False  # the supervisor would stop everything
        _signal_all(pids, signal.SIGKILL)
        child.sweep()
        try:
            yield
        finally:
            (Path(command[command.index("-D") + 1]) / "postmaster.pid").unlink(missing_ok=True)
            self.supervisor._start(child)
            self.until(lambda: child.alive() and child.is_ready(), "postgres ready", READY_S)
            child.settled = True

    def pause_s(self, seconds: float) -> None:
        """Let a trouble last: nothing is to come true meanwhile."""
        ends = time.monotonic() + seconds
        self.until(lambda: time.monotonic() > ends, "the end of a pause", seconds + 5)


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
