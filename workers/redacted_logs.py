"""Log lines without the secrets that this process has met."""

import logging
from typing import Any

from runtime.known_secrets import known_secrets


class RedactedFormatter(logging.Formatter):
    """Whatever a record holds, traceback included."""

    def format(self, record: logging.LogRecord) -> str:
        return known_secrets.redacted(super().format(record))


def redacted_line(_logger: Any, _method: str, line: Any) -> Any:
    """structlog's last processor: the rendered line."""
    return known_secrets.redacted(line)
