"""`playlane`: the commands, and one place where an error becomes a line and an exit code."""

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from runtime.errors import PlaylaneError
from workers.cli import (
    budget,
    cancel,
    deliver,
    doctor,
    enqueue,
    export,
    flower,
    lanes,
    migrate,
    probe,
    purge,
    report,
    rerun,
    rows,
    stack,
    status,
    watch,
    worker,
    workers,
)
from workers.cli.terminal import FAILED, exit_code, say_error

DEBUG_VARIABLE = "PLAYLANE_DEBUG"

app = typer.Typer(
    name="playlane",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Run plays: durable, paced, pay-once enrichment on worker pools.",
    epilog="Example: playlane enqueue airports --csv airports.csv --watch",
)


@app.callback()
def playlane(
    debug: Annotated[
        bool, typer.Option("--debug", help=f"Show the whole trace of an error ({DEBUG_VARIABLE}=1 does too).")
    ] = False,
) -> None:
    """The options of all commands; `run` reads them before typer does."""


app.command("up", epilog="Example: playlane up --rows-workers 2")(stack.up)
app.command("enqueue", epilog="Example: playlane enqueue airports --csv airports.csv --watch")(
    enqueue.enqueue
)
app.command("watch", epilog="Example: playlane watch run-20250131-120000-1a2b3c4d")(watch.watch)
app.command("status", epilog="Example: playlane status run-20250131-120000-1a2b3c4d --json")(status.status)
app.command("report", epilog="Example: playlane report run-20250131-120000-1a2b3c4d --html run.html")(
    report.report
)
app.command("rows", epilog="Example: playlane rows run-20250131-120000-1a2b3c4d --failed")(rows.rows)
app.command("export", epilog="Example: playlane export run-20250131-120000-1a2b3c4d airports --to jsonl")(
    export.export
)
app.command("rerun", epilog="Example: playlane rerun run-20250131-120000-1a2b3c4d --only failed")(rerun.rerun)
app.command("budget", epilog="Example: playlane budget run-20250131-120000-1a2b3c4d --credits 500")(
    budget.budget
)
app.command("cancel", epilog="Example: playlane cancel run-20250131-120000-1a2b3c4d")(cancel.cancel)
app.command("deliver", epilog="Example: playlane deliver approval:42 --payload '{\"approved\": true}'")(
    deliver.deliver
)
app.command("worker", epilog="Example: playlane worker lanes --lanes default,timezones")(worker.worker)
app.command("flower", epilog="Example: playlane flower --port 5555")(flower.flower)
app.command("workers", epilog="Example: playlane workers --json")(workers.workers)
app.command("lanes", epilog="Example: playlane lanes --watch")(lanes.lanes)
app.command("doctor", epilog="Example: playlane doctor")(doctor.doctor)
app.command("purge", epilog="Example: playlane purge --older-than 30d --dry-run")(purge.purge)
app.command("probe", epilog="Example: PLAYLANE_PROBE_PORT=8080 playlane probe")(probe.probe)
app.command("migrate", epilog="Example: playlane migrate")(migrate.migrate)


def run(arguments: Sequence[str]) -> int:
    """Run one command line; returns its exit code and never raises."""
    debug = "--debug" in arguments or os.environ.get(DEBUG_VARIABLE, "") not in ("", "0")
    as_json = "--json" in arguments
    _quiet_libraries()
    try:
        app(args=[part for part in arguments if part != "--debug"], prog_name="playlane")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except Exception as error:
        if debug:
            logging.getLogger("playlane").exception("the trace that --debug asked for")
        known = error if isinstance(error, PlaylaneError) else _unexpected(error)
        say_error(known, as_json=as_json)
        return exit_code(known)
    return 0


def main() -> None:
    """Entry of the console script."""
    # Like `python -m`: plays in the folder where the command is called can be imported.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    sys.exit(run(sys.argv[1:]))


def _quiet_libraries() -> None:
    # The pool logs every failed connection; the one that matters is told by the error.
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)


def _unexpected(error: Exception) -> PlaylaneError:
    return PlaylaneError(
        f"unexpected {type(error).__name__}: {error}; this is a fault of playlane or of a play module: "
        "the same command with --debug shows where"
    )


__all__ = ["FAILED", "app", "main", "run"]

if __name__ == "__main__":
    main()
