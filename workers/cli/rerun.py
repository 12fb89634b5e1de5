"""`playlane rerun RUN`."""

from typing import Annotated

import typer

from runtime.model.rerun import Only
from workers.cli import watch
from workers.cli.connection import connect, sender_settings
from workers.cli.enqueue import Refresh, check_play, refuse_other, run_options
from workers.cli.options import AsJson, RunId
from workers.cli.terminal import say, say_json


def rerun(
    run_id: RunId,
    only: Annotated[
        Only | None,
        typer.Option(help="Run only rows with failed, missing or stale cells, and of them only those cells."),
    ] = None,
    as_run_id: Annotated[
        str | None, typer.Option("--run-id", help="Id of the new run; the same id starts once.")
    ] = None,
    refresh: Annotated[
        list[Refresh] | None,
        typer.Option(help="Besides the options of RUN: make anew tools, failed or steps; may be repeated."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="The same as --refresh steps --refresh failed.")
    ] = False,
    watching: Annotated[bool, typer.Option("--watch", help="Watch it to its end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run the play of a run again on the same input with the same options; receipts answer what was bought."""
    settings = sender_settings()
    with connect() as client:
        known = client.status(run_id)
        check_play(known.play, settings)
        there = client.find(as_run_id) if as_run_id else None
        refuse_other(there, known.play, known.input, rerun_of=run_id)
        started = client.rerun(
            run_id, only=only, as_run_id=as_run_id, options=run_options(refresh or [], force=force)
        )
        if as_json:
            told = {"run_id": started, "play": known.play, "rerun_of": run_id, "only": only}
            say_json({**told, "new": there is None})
        elif there:
            say(f"{started} exists already and is {there.state.value}: nothing new was started")
        else:
            what = f"its {only.value} cells" if only else "all rows"
            say(f"{started} is queued: {what} of {run_id}")
        if watching:
            raise typer.Exit(watch.follow(client.status, started, as_json=as_json, news=client.news))
    if not as_json:
        say(f"  playlane watch {started}     progress until it ends")
        if only is Only.FAILED and not (force or Refresh.FAILED in (refresh or ())):
            say("  a call that was refused for good answers by its receipt again; --refresh failed asks anew")
