"""`print` and `logging` inside a play become lines of its run's log; everywhere else they do what they always did."""

import io
import logging
import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TextIO

from runtime.context.log_line import log_text
from runtime.context.scope import Printed, current_scope
from runtime.policy.limits import DEFAULT_LIMITS, Limits

_OURS = frozenset(
    [
        "amqp",
        "asyncio",
        "billiard",
        "bench",
        "broker_config",
        "celery",
        "flower",
        "hpack",
        "httpcore",
        "httpx",
        "kombu",
        "opentelemetry",
        "psycopg",
        "redis",
        "runtime",
        "sqlalchemy",
        "tornado",
        "urllib3",
        "vine",
        "workers",
    ]
)


class Output:
    """What one place of a play prints: whole lines, so many of them, each cut to `log_chars`."""

    __slots__ = ("_dropped", "_limits", "_lines", "_log", "_most", "_parts")

    def __init__(
        self, log: Callable[[str, str], None], limits: Limits = DEFAULT_LIMITS, *, most: int | None = None
    ) -> None:
        self._log = log
        self._limits = limits
        self._most = limits.captured_lines if most is None else most
        self._lines = 0
        self._dropped = 0
        self._parts: dict[str, str] = {}  # level -> a line that has not ended

    def write(self, text: str, level: str) -> None:
        """More text; each line that ends in it is kept."""
        *lines, rest = (self._parts.pop(level, "") + text).split("\n")
        for line in lines:
            self.line(line, level)
        if rest:
            self._parts[level] = rest[: self._limits.log_chars + 1]

    def line(self, text: str, level: str) -> None:
        """One line; blank ones are left out."""
        if not text.strip():
            return
        if self._lines >= self._most:
            self._dropped += 1
            return
        self._lines += 1
        self._log(log_text(text.rstrip("\r"), self._limits), level)

    def end(self) -> None:
        """Keep lines that have no end, and say how many there was no room for."""
        parts, self._parts = self._parts, {}
        for level, text in parts.items():
            self.line(text, level)
        if self._dropped:
            self._log(f"{self._dropped} more printed lines were dropped", "warning")
            self._dropped = 0


body_output: ContextVar[Printed | None] = ContextVar("playlane_body_output", default=None)
"""Where a body prints to; rows print to their scope."""


def here() -> Printed | None:
    """Where the play that runs here prints to; None outside of plays."""
    scope = current_scope.get()
    return scope.output if scope is not None else body_output.get()


def capture(*, level: int = logging.INFO) -> None:
    """Put the capture in front of this process's standard streams and its root logger; safe to repeat.

    Records from `level` on are captured, whatever less the worker's own log shows.
    """
    if not isinstance(sys.stdout, CapturedStream):
        sys.stdout = CapturedStream(sys.stdout, "info")
    if not isinstance(sys.stderr, CapturedStream):
        sys.stderr = CapturedStream(sys.stderr, "error")
    root = logging.getLogger()
    if not any(isinstance(handler, CapturedLogging) for handler in root.handlers):
        _levels.extend((one, one.level) for one in (root, *root.handlers))
        for handler in root.handlers:
            handler.setLevel(max(handler.level, root.level))
        root.setLevel(min(root.level, level))
        root.addHandler(CapturedLogging())


_levels: list[tuple[logging.Logger | logging.Handler, int]] = []


def release() -> None:
    """Undo `capture`."""
    if isinstance(sys.stdout, CapturedStream):
        sys.stdout = sys.stdout.outside
    if isinstance(sys.stderr, CapturedStream):
        sys.stderr = sys.stderr.outside
    root = logging.getLogger()
    for handler in [one for one in root.handlers if isinstance(one, CapturedLogging)]:
        root.removeHandler(handler)
    while _levels:
        one, level = _levels.pop()
        one.setLevel(level)


class CapturedStream(io.TextIOBase):
    """A standard stream that a play's text doesn't reach."""

    def __init__(self, outside: TextIO, level: str) -> None:
        self.outside = outside
        self._level = level

    def write(self, text: str) -> int:
        output = here()
        if output is None:
            return self.outside.write(text)
        output.write(text, self._level)
        return len(text)

    def flush(self) -> None:
        self.outside.flush()

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self.outside.isatty()

    def fileno(self) -> int:
        return self.outside.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.outside.encoding

    def __getattr__(self, name: str) -> Any:
        return getattr(self.outside, name)


class CapturedLogging(logging.Handler):
    """Records of a play's own loggers and of libraries that it uses; not of those that carry playlane."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.name.partition(".")[0] not in _OURS and here() is not None

    def emit(self, record: logging.LogRecord) -> None:
        output = here()
        if output is None:
            return
        try:
            text = self.format(record)
        except Exception:  # noqa: BLE001
            text = f"a log record that can't be written: {record.msg!r:.200}"
        output.line(text.replace("\n", " | "), _level(record.levelno))


def _level(number: int) -> str:
    if number >= logging.ERROR:
        return "error"
    if number >= logging.WARNING:
        return "warning"
    return "info" if number >= logging.INFO else "debug"
