"""The process that outlives a killed supervisor long enough to stop its children."""

import signal
import subprocess
from pathlib import Path
from threading import Lock

SCRIPT = Path(__file__).with_name("reaper.sh")


class Reaper:
    """A /bin/sh in its own session; our pipe is its stdin, so it learns of our death even by kill -9."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._shell = subprocess.Popen(
            ["/bin/sh", str(SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            text=True,
        )

    def add(self, pid: int, stop_signal: signal.Signals, stop_s: float, tier: int) -> bool:
        """False: the reaper is gone, and so is its protection."""
        return self._tell(f"add {pid} {stop_signal.name.removeprefix('SIG')} {round(stop_s * 10)} {tier}")

    def gone(self, pid: int) -> bool:
        """Forgets a child that has ended, so that a stranger with its pid is never hit."""
        return self._tell(f"gone {pid}")

    def close(self) -> None:
        """Says that nothing is left to stop."""
        self._tell("bye")
        with self._lock:
            if self._shell.stdin is not None and not self._shell.stdin.closed:
                try:
                    self._shell.stdin.close()
                except BrokenPipeError:
                    self._shell.stdin = None
        self._shell.wait()

    def _tell(self, line: str) -> bool:
        with self._lock:
            pipe = self._shell.stdin
            if pipe is None or pipe.closed:
                return False
            try:
                pipe.write(line + "\n")
                pipe.flush()
            except BrokenPipeError:
                return False
            return True
