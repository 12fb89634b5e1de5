"""Where the output of the stack's processes goes: the terminal, with a prefix, and log files."""

import sys
import time
import zlib
from pathlib import Path
from threading import Lock
from typing import IO, TextIO

COLOURS = (31, 32, 33, 34, 35, 36)
PREFIX_WIDTH = 9


class Console:
    """Writes `HH:MM:SS name | line`; coloured only on a terminal."""

    def __init__(self, stream: TextIO | None = None, *, colour: bool | None = None) -> None:
        self._stream = stream or sys.stdout
        self._colour = self._stream.isatty() if colour is None else colour
        self._lock = Lock()
        self._open = True

    def say(self, name: str, line: str) -> None:
        prefix = f"{time.strftime('%H:%M:%S')} {name:<{PREFIX_WIDTH}}| "
        if self._colour:
            prefix = f"\033[{COLOURS[zlib.crc32(name.encode()) % len(COLOURS)]}m{prefix}\033[0m"
        with self._lock:
            if self._open:
                self._write(prefix + line + "\n")

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            # The reader went away (`| head`, a closed terminal): only the output ends, children are drained on.
            self._open = False


class LogFile:
    """A child's output on disk, begun anew with each stack; a full file becomes the one old file kept."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._file: IO[bytes] | None = None
        self._written = 0

    def write(self, line: bytes) -> None:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("wb")
            self._written = 0
        self._file.write(line)
        self._file.flush()
        self._written += len(line)
        if self._written > self._max_bytes:
            self.close()
            self._path.replace(self._path.with_name(self._path.name + ".1"))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
