"""`playlane enqueue PLAY`."""

from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from broker_config.settings import Settings
from runtime.errors import BadInputError, JsonValueError, PlaylaneError, UnknownPlayError
from runtime.model import json_value
from runtime.model.status import RunStatus
from runtime.play import plays
from workers.cli import watch
from workers.cli.connection import connect, sender_settings
from workers.cli.options import AsJson
from workers.cli.terminal import say, say_json


class Refresh(StrEnum):
    TOOLS = "tools"  # every tool call's stored result
    FAILED = "failed"  # failures that are final
    STEPS = "steps"  # results of steps and fetches


def enqueue(
    play: Annotated[str, typer.Argument(metavar="PLAY", help="Name of the play.")],
    csv: Annotated[Path | None, typer.Option(help='CSV file, given to the play as input["file"].')] = None,
    input: Annotated[str | None, typer.Option(help="The play's input, a JSON object.")] = None,
    run_id: Annotated[str | None, typer.Option(help="Id of the run; the same id starts once.")] = None,
    org: Annotated[str | None, typer.Option(help="Org that the run belongs to.")] = None,
    refresh: Annotated[
        list[Refresh] | None,
        typer.Option(help="Make anew what earlier runs made: tools, failed or steps; may be repeated."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="The same as --refresh steps --refresh failed.")
    ] = False,
    max_credits: Annotated[
        float | None,
        typer.Option(min=0, help="Most credits that the run may use; in place of the play's own cap."),
    ] = None,
    watching: Annotated[bool, typer.Option("--watch", help="Watch it to its end.")] = False,
    as_json: AsJson = False,
) -> None:
    """Start a run of a play and print its id."""
    check_play(play, sender_settings())
    run_input = assemble_input(csv, input)
    with connect(org) as client:
        known = client.find(run_id) if run_id else None
        refuse_other(known, play, run_input)
        started = client.enqueue(
            play,
            run_input,
            run_id=run_id,
            options={**run_options(refresh or [], force=force), **caps(max_credits)},
        )
        state = known.state.value if known else "queued"
        if as_json:
            say_json({"run_id": started, "play": play, "state": state, "new": known is None})
        elif known:
            say(f"{started} exists already and is {state}: nothing new was started")
        else:
            say(f"{started} is queued")
        if watching:
            raise typer.Exit(watch.follow(client.status, started, as_json=as_json, news=client.news))
    if not as_json:
        say(f"  playlane watch {started}     progress until it ends")
        say(f"  playlane status {started}    how it stands")
        say(f"  playlane cancel {started}    end it")


def refuse_other(known: RunStatus | None, play: str, run_input: Any, *, rerun_of: str | None = None) -> None:
    """A run id stands for one play, input and repeated run: others under it would report the old run as theirs."""
    if known is None:
        return
    if known.play != play or not json_value.same(known.input, run_input):
        raise BadInputError(
            f"run {known.run_id} exists already, for play {known.play} and another input: choose another --run-id"
        )
    if rerun_of is not None and known.options.get("rerun_of") != rerun_of:
        raise BadInputError(
            f"run {known.run_id} exists already, and is no rerun of {rerun_of}: choose another --run-id"
        )


def run_options(refresh: list[Refresh], *, force: bool) -> dict[str, bool]:
    """The run's options as the message names them."""
    wanted = {*refresh, *((Refresh.STEPS, Refresh.FAILED) if force else ())}
    return {f"refresh_{one.value}": True for one in Refresh if one in wanted}


def caps(max_credits: float | None) -> dict[str, float]:
    """The run's caps as the message names them."""
    return {} if max_credits is None else {"max_credits": max_credits}


def check_play(play: str, settings: Settings) -> None:
    """Raise UnknownPlayError that lists what the play modules define, unless `play` is among it."""
    load_modules(settings)
    known = plays.names()
    if play in known:
        return
    where = f"modules {', '.join(settings.play_modules)}" if settings.play_modules else "no modules at all"
    raise UnknownPlayError(
        f'there is no play "{play}" (known: {", ".join(known) or "none"}): PLAYLANE_PLAY_MODULES names {where}'
    )


def load_modules(settings: Settings) -> None:
    """Import the play modules; whatever goes wrong in one is a BadInputError that names it."""
    for module in settings.play_modules:
        try:
            import_module(module)
        except PlaylaneError:
            raise
        except Exception as error:
            raise BadInputError(
                f"play module {module} can't be imported ({type(error).__name__}: {error}): mend it, "
                "or take it out of PLAYLANE_PLAY_MODULES"
            ) from error


def assemble_input(csv: Path | None, text: str | None) -> Any:
    """The run's input from `--input` and `--csv`; raises BadInputError before anything is sent."""
    given = parse_input(text)
    if csv is None:
        return given
    if not isinstance(given, dict):
        raise BadInputError("--csv needs --input to be a JSON object, for it adds the field file to it")
    if "file" in given:
        raise BadInputError('--csv and the field "file" of --input name two files: leave one out')
    return {**given, "file": str(readable_csv(csv))}


def parse_input(text: str | None) -> Any:
    """The value of `--input`, an empty object if it was not given."""
    if text is None:
        return {}
    try:
        given = json_value.loads_foreign(text.encode())
    except (JsonValueError, UnicodeEncodeError) as error:
        raise BadInputError(
            f"""--input is not JSON ({error}): write --input '{{"name": "value"}}'"""
        ) from None
    try:
        return json_value.check(given)
    except JsonValueError as error:
        raise BadInputError(
            f"--input can't be kept exactly ({error}): nothing was sent, mend it there"
        ) from None


def readable_csv(csv: Path) -> Path:
    """The file's absolute path; raises BadInputError if it can't be read."""
    path = csv.expanduser().absolute()
    if not path.exists():
        raise BadInputError(f"there is no file {path}: check the path after --csv")
    if not path.is_file():
        raise BadInputError(f"{path} is not a file: --csv takes one CSV file")
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        raise BadInputError(
            f"{path} can't be read ({error.strerror}): give yourself leave to read it"
        ) from error
    return path
