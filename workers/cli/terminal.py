"""What commands print: one JSON object a line for machines, words for people."""

import sys
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from runtime.errors import BadInputError, PlaylaneError, ServiceUnreachableError
from runtime.model import json_value

OK, FAILED, BAD_INPUT, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 130


def say(line: str) -> None:
    """One line to stdout."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def say_json(value: Any) -> None:
    """One JSON value on one line to stdout."""
    say(json_value.dumps(value).decode())


def plain_table() -> Table:
    """How our tables look: no frame, bold heads; columns are the caller's."""
    return Table(box=None, pad_edge=False, header_style="bold")


def say_error(error: PlaylaneError, *, as_json: bool) -> None:
    """The error as one red line on stderr, or as one JSON object there."""
    if as_json:
        sys.stderr.write(json_value.dumps({"error": error.to_payload()}).decode() + "\n")
    else:
        Console(stderr=True, soft_wrap=True, highlight=False).print(Text(f"error: {error}", style="red"))


def exit_code(error: PlaylaneError) -> int:
    """2: mend what you asked for; 3: a server does not answer; 1: everything else."""
    if isinstance(error, BadInputError):
        return BAD_INPUT
    return UNREACHABLE if isinstance(error, ServiceUnreachableError) else FAILED
