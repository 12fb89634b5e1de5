"""One supervised process: started, read line by line, stopped with its whole group."""

import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import IO

from runtime.policy.limits import DEFAULT_LIMITS
from workers.stack.console import Console, LogFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How a process is started, known to be ready, and stopped."""

    name: str
    command: Sequence[str | Path]
    env: Mapping[str, str] | None = None
    cwd: Path | None = None
    user: int | None = None
    group: int | None = None
    pass_fds: tuple[int, ...] = ()
    restart: bool = False
    stop_signal: signal.Signals = signal.SIGTERM
    stop_s: float = DEFAULT_LIMITS.server_stop_s
    orphan_stop_s: float = DEFAULT_LIMITS.orphan_stop_s
    quiet: bool = False
    log: Path | None = None
    ready: Callable[[], bool] | None = None
    ready_line: str | None = None
    ready_timeout_s: float = DEFAULT_LIMITS.server_ready_s
    tier: int = 0


class Child:
    """A launch and its current process; the process changes with a restart, the child does not."""

    def __init__(self, launch: Launch, console: Console) -> None:
        self.launch = launch
        self.deaths: deque[float] = deque(maxlen=DEFAULT_LIMITS.restart_deaths)
        self.restart_at: float | None = None
        self.settled = False
        self._console = console
        self._tail: deque[str] = deque(maxlen=DEFAULT_LIMITS.output_tail_lines)
        self._line_seen = Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: Thread | None = None
        self._swept = False
        self._log = LogFile(launch.log, DEFAULT_LIMITS.output_log_bytes) if launch.log else None

    @property
    def name(self) -> str:
        return self.launch.name

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError(f"{self.name} was never started")
        return self._process.pid

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        self._line_seen.clear()
        self._swept = False
        how = self.launch
        self._process = subprocess.Popen(
            [str(part) for part in how.command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=None if how.env is None else dict(how.env),
            cwd=how.cwd,
            user=how.user,
            group=how.group,
            extra_groups=None if how.user is None else [],
            pass_fds=how.pass_fds,
        )
        if self._process.stdout is not None:
            self._reader = Thread(
                target=self._read, args=(self._process.stdout,), name=f"read-{self.name}", daemon=True
            )
            self._reader.start()

    def is_ready(self) -> bool:
        if self.launch.ready_line is not None and not self._line_seen.is_set():
            return False
        return self.launch.ready is None or self.launch.ready()

    def ask_to_stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(self.launch.stop_signal)

    def sweep(self) -> None:
        """Ends what is left of the process and its group, and what its output still holds."""
        if self._process is None or self._swept:
            return
        self._swept = True
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        except PermissionError:
            # macOS answers so for a group of zombies.
            self._process.kill()
        self._process.wait(DEFAULT_LIMITS.child_stopped_s)
        if self._reader is not None:
            self._reader.join(DEFAULT_LIMITS.child_stopped_s)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()

    def ending(self) -> str:
        """How the last process ended, in words."""
        code = None if self._process is None else self._process.poll()
        if code is None:
            return "is still running"
        return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def last_lines(self) -> str:
        return "\n".join(f"  {line}" for line in self._tail) or "  (it wrote nothing)"

    def _read(self, output: IO[bytes]) -> None:
        with output:
            while raw := output.readline(DEFAULT_LIMITS.output_line_bytes):
                self._take(raw)

    def _take(self, raw: bytes) -> None:
        line = raw.decode("utf-8", "replace").rstrip()
        self._tail.append(line)
        if self.launch.ready_line is not None and self.launch.ready_line in line:
            self._line_seen.set()
        if self._log is not None:
            self._log.write(raw)
        if not self.launch.quiet:
            self._console.say(self.name, line)
