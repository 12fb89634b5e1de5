"""`playlane deliver KEY`."""

import json
from typing import Annotated

import typer

from runtime.errors import BadInputError
from runtime.model import json_value
from workers.cli.connection import connect
from workers.cli.options import AsJson
from workers.cli.terminal import say, say_json


def deliver(
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="What ctx.wait_for_event waits for: its key, else its id.")
    ],
    payload: Annotated[str, typer.Option(help="What the waits give, as JSON.")] = "null",
    org: Annotated[str | None, typer.Option(help="Whose runs it is for; else PLAYLANE_ORG_ID.")] = None,
    event_id: Annotated[str | None, typer.Option(help="Makes it one event however often it is sent.")] = None,
    as_json: AsJson = False,
) -> None:
    """Tell runs of an event: those that wait for it, and those that will ask for it later."""
    value = parsed(payload)
    with connect(org) as client:
        told = client.deliver(key, value, event_id=event_id)
    if as_json:
        say_json({"event_id": told, "key": key, "org_id": client.org_id})
    else:
        say(f'event {told} is stored and on its way to who waits for "{key}"')


def parsed(payload: str) -> object:
    """The payload's value; raises BadInputError."""
    try:
        return json_value.check(json.loads(payload), path="$.payload")
    except ValueError as error:
        raise BadInputError(
            f"--payload is not JSON ({error}): quote it, as in --payload '{{\"ok\": true}}'"
        ) from None
