"""A worker's log: lines for people or JSON for machines, of ours and of libraries, without secrets."""

import logging
import sys
from typing import Any

import structlog
from structlog.contextvars import merge_contextvars

from runtime.known_secrets import known_secrets

TEXT = "%(levelname)s %(name)s %(message)s"
AT_LEAST = {"celery": logging.WARNING, "kombu": logging.WARNING, "httpx": logging.WARNING}


def configure_logs(level: str, *, as_json: bool) -> None:
    """Logs to stdout. What is bound where work begins (run, dataset, row, lane) is in each line."""
    lowest = logging.getLevelName(level)
    logging.basicConfig(level=level, stream=sys.stdout, force=True)
    formatter = json_formatter() if as_json else RedactedFormatter(TEXT)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(formatter)
    for name, least in AT_LEAST.items():
        logging.getLogger(name).setLevel(max(least, lowest))
    structlog.configure(
        processors=[*_shared(), _renderer(as_json=as_json), redacted_line],
        wrapper_class=structlog.make_filtering_bound_logger(lowest),
        logger_factory=structlog.PrintLoggerFactory(sys.stdout),
    )


class RedactedFormatter(logging.Formatter):
    """Whatever a record holds, traceback included."""

    def format(self, record: logging.LogRecord) -> str:
        return known_secrets.redacted(super().format(record))


def json_formatter() -> logging.Formatter:
    """Records of libraries, in the same JSON as our own lines."""
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.add_logger_name, *_shared()],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            _renderer(as_json=True),
            redacted_line,
        ],
    )


def redacted_line(_logger: Any, _method: str, line: Any) -> Any:
    """structlog's last processor: the rendered line."""
    return known_secrets.redacted(line)


def _shared() -> list[Any]:
    return [
        merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]


def _renderer(*, as_json: bool) -> Any:
    if as_json:
        return structlog.processors.JSONRenderer()
    return structlog.dev.ConsoleRenderer(colors=sys.stdout.isatty())
