"""Starts processes in order, keeps the restartable ones alive, stops all in reverse order."""

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from threading import RLock, Thread, current_thread
from types import TracebackType
from typing import Self

from runtime.errors import ChildNotReadyError, StackError, StackStoppedError
from runtime.policy.limits import DEFAULT_LIMITS
from workers.stack.child import Child, Launch
from workers.stack.console import Console
from workers.stack.reaper import Reaper
from workers.stack.restarting import StopAll, decide_restart


class Supervisor:
    """Owns child processes; none outlives it, not even after kill -9 of this process."""

    def __init__(
        self, console: Console | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.console = console or Console()
        self.failure: str | None = None
        self._clock = clock
        self._lock = RLock()
        self._children: list[Child] = []
        # No Event: a signal handler that sets one may interrupt its own thread while that holds its lock.
        self._stops_asked = 0
        self._stopped = False
        self._watcher: Thread | None = None
        self._reaper = Reaper()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def spawn(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        restart: bool = False,
        stop_signal: signal.Signals = signal.SIGTERM,
        stop_s: float = DEFAULT_LIMITS.server_stop_s,
        quiet: bool = False,
        log: Path | None = None,
        ready: Callable[[], bool] | None = None,
        ready_line: str | None = None,
        ready_timeout_s: float = DEFAULT_LIMITS.server_ready_s,
        beside: Child | None = None,
        wait: bool = True,
    ) -> Child:
        """Starts a process and waits until it is ready. `beside`: it stops together with that one."""
        launch = Launch(
            name=name,
            command=command,
            env=env,
            restart=restart,
            stop_signal=stop_signal,
            stop_s=stop_s,
            quiet=quiet,
            log=log,
            ready=ready,
            ready_line=ready_line,
            ready_timeout_s=ready_timeout_s,
            tier=self.next_tier() if beside is None else beside.launch.tier,
        )
        return self.launch(launch, wait=wait)

    def next_tier(self) -> int:
        """The tier of a process that depends on all those started so far."""
        with self._lock:
            return 1 + max((child.launch.tier for child in self._children), default=0)

    def launch(self, launch: Launch, *, wait: bool = True) -> Child:
        """`spawn` for a ready-made launch. With `wait=False` the caller calls `wait_ready` later."""
        child = Child(launch, self.console)
        with self._lock:
            self._refuse_if_stopping(launch.name)
            self._children.append(child)
            self._start(child)
        if wait:
            self.wait_ready(child)
        return child

    def wait_ready(self, child: Child) -> None:
        """Returns once the child is ready; raises with its last lines when it dies or stays silent."""
        deadline = self._clock() + child.launch.ready_timeout_s
        while not child.is_ready():
            if not child.alive():
                child.sweep()
                if child.is_ready():  # it said so with its last breath
                    return
                raise ChildNotReadyError(
                    f"{child.name} {child.ending()} while starting; its last lines:\n{child.last_lines()}"
                )
            if self._clock() > deadline:
                raise ChildNotReadyError(
                    f"{child.name} was not ready within {child.launch.ready_timeout_s:.0f} s; "
                    f"its last lines:\n{child.last_lines()}"
                )
            if self._stops_asked:
                raise StackStoppedError(f"a stop was asked while {child.name} was starting")
            time.sleep(DEFAULT_LIMITS.ready_poll_s)
        child.settled = True

    def drop(self, child: Child) -> None:
        """Stops one child and forgets it."""
        with self._lock:
            self._children.remove(child)
        self._stop_together([child])

    def pids(self) -> dict[str, int]:
        """The pid of every living child by name; it changes with a restart."""
        with self._lock:
            return {child.name: child.pid for child in self._children if child.alive()}

    def watch(self, until: Callable[[], bool] | None = None) -> str | None:
        """Restarts what dies. None: a stop was asked or `until` came true; else why nothing can go on."""
        while not self._stops_asked:
            if until is not None and until():
                return None
            with self._lock:
                self.failure = self._restart_the_dead()
            if self.failure is not None:
                return self.failure
            time.sleep(DEFAULT_LIMITS.supervise_poll_s)
        return None

    def start_watching(self) -> None:
        """`watch` in a background thread until `stop`; look at `failure` to learn that it gave up."""
        self._watcher = Thread(target=self.watch, name="supervisor-watch", daemon=True)
        self._watcher.start()

    def ask_stop(self) -> None:
        """Safe in a signal handler: ends `watch` and every wait. Asked again, it cuts the graces short."""
        self._stops_asked += 1

    def stop(self) -> None:
        """Stops all, newest first; a child that outstays its grace is killed. May be called twice."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
        self._stops_asked = max(self._stops_asked, 1)
        if self._watcher is not None and self._watcher is not current_thread():
            self._watcher.join()
        newest_first = sorted(self._children, key=lambda child: child.launch.tier, reverse=True)
        for _, tier in groupby(newest_first, key=lambda child: child.launch.tier):
            self._stop_together(list(tier))
        self._reaper.close()

    def _refuse_if_stopping(self, name: str) -> None:
        if self._stopped or self._stops_asked:
            raise StackStoppedError(f"{name} is not started: a stop was asked")
        if any(child.name == name for child in self._children):
            raise StackError(f"a process named {name} is supervised already: give this one another name")

    def _start(self, child: Child) -> None:
        child.restart_at = None
        child.start()
        launch = child.launch
        if not self._reaper.add(child.pid, launch.stop_signal, launch.orphan_stop_s, launch.tier):
            self.console.say(
                "system", "the reaper was killed: kill -9 of this process would leave children running"
            )

    def _restart_the_dead(self) -> str | None:
        for child in self._children:
            if not child.settled or child.alive():
                continue
            if child.restart_at is None:
                reason = self._bury(child)
                if reason is not None:
                    return reason
            elif self._clock() >= child.restart_at:
                self._start(child)
        return None

    def _bury(self, child: Child) -> str | None:
        child.sweep()
        self._reaper.gone(child.pid)
        if not child.launch.restart:
            return f"{child.name} {child.ending()}, and nothing can go on without it: everything stops"
        now = self._clock()
        child.deaths.append(now)
        decision = decide_restart(child.name, child.deaths, now)
        if isinstance(decision, StopAll):
            return f"{decision.reason}:\n{child.last_lines()}"
        child.restart_at = now + decision.delay_s
        self.console.say(
            "system", f"{child.name} {child.ending()}; starting it again in {decision.delay_s:g} s"
        )
        return None

    def _stop_together(self, children: Sequence[Child]) -> None:
        living = [child for child in children if child.alive()]
        for child in living:
            child.ask_to_stop()
        deadline = self._clock() + max((child.launch.stop_s for child in living), default=0.0)
        while any(child.alive() for child in living) and self._clock() < deadline and self._stops_asked < 2:
            time.sleep(DEFAULT_LIMITS.ready_poll_s)
        for child in living:
            if child.alive():
                self.console.say(
                    "system", f"{child.name} did not stop on {child.launch.stop_signal.name}: killed"
                )
        for child in children:
            child.sweep()
            self._reaper.gone(child.pid)
            child.close()
