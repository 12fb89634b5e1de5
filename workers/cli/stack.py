"""`playlane up` on the command line."""

import time
from pathlib import Path
from typing import Annotated

import typer

from workers.cli.options import AsJson
from workers.cli.terminal import say_json
from workers.cli.up import run_up
from workers.stack.console import Console
from workers.stack.stack import Counts

Count = Annotated[int, typer.Option(min=1, max=64)]


class JsonConsole(Console):
    """The stack's output as one JSON object a line."""

    def say(self, name: str, line: str) -> None:
        say_json({"at": time.time(), "process": name, "line": line})


def up(
    control_workers: Count = 1,
    plays_workers: Count = 1,
    rows_workers: Count = 1,
    lanes_workers: Count = 1,
    state: Annotated[Path, typer.Option(help="Folder for data, logs and addresses.")] = Path(".playlane"),
    flower: Annotated[bool, typer.Option(help="Start Flower too.")] = True,
    api: Annotated[bool, typer.Option(help="Start the reference execution API too.")] = True,
    as_json: AsJson = False,
) -> None:
    """Start servers, workers, Flower and an execution API here, until Ctrl-C."""
    counts = Counts(control=control_workers, plays=plays_workers, rows=rows_workers, lanes=lanes_workers)
    console = JsonConsole() if as_json else None
    raise typer.Exit(run_up(state, counts, flower=flower, api=api, console=console))
