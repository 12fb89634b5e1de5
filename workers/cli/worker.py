"""`playlane worker ROLE`."""

import os
from enum import StrEnum
from typing import Annotated

import typer

from broker_config.lanes import LANES
from runtime.errors import BadInputError
from workers.cli.options import AsJson


class Role(StrEnum):
    CONTROL = "control"
    PLAYS = "plays"
    ROWS = "rows"
    LANES = "lanes"


def worker(
    role: Annotated[Role, typer.Argument(metavar="ROLE", help="control, plays, rows or lanes.")],
    concurrency: Annotated[int | None, typer.Option(min=1, max=1024, help="Tasks at once.")] = None,
    lanes: Annotated[str, typer.Option(help="Comma separated lanes; all if not given.")] = "",
    name: Annotated[str | None, typer.Option(help="Name in Flower; the role if not given.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run one worker process until SIGTERM."""
    wanted = lane_names(role, lanes)
    if as_json:
        os.environ["PLAYLANE_LOG_JSON"] = "true"
    from workers.lifecycle import run_worker

    raise typer.Exit(run_worker(role.value, concurrency=concurrency, lanes=wanted, name=name))


def lane_names(role: Role, text: str) -> tuple[str, ...]:
    """The lanes asked for; raises BadInputError for one that isn't declared, or for a role without lanes."""
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if names and role is not Role.LANES:
        raise BadInputError(f"a {role} worker takes no lanes: leave --lanes out, or start `worker lanes`")
    declared = {lane.provider for lane in LANES}
    unknown = [name for name in names if name not in declared]
    if unknown:
        raise BadInputError(
            f"no such lane: {', '.join(unknown)} (declared: {', '.join(sorted(declared))}); "
            "declare it in broker_config/lanes.py"
        )
    return names
