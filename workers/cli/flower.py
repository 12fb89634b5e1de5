"""`playlane flower`: stock Flower on our app."""

import os
from collections.abc import Mapping
from typing import Annotated

import typer

from runtime.errors import BadInputError
from workers.cli.connection import sender_settings
from workers.cli.options import AsJson
from workers.cli.terminal import say, say_json

BASIC_AUTH_VARIABLE = "FLOWER_BASIC_AUTH"
LOGIN_VARIABLES = (BASIC_AUTH_VARIABLE, "FLOWER_AUTH")
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def flower(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 5555,
    address: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    basic_auth: Annotated[
        str, typer.Option(envvar=BASIC_AUTH_VARIABLE, help="user:password; better given in the environment.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Run Flower: workers, posts and slices in the browser."""
    refuse_open_door(address, basic_auth, os.environ)
    if basic_auth:
        os.environ[BASIC_AUTH_VARIABLE] = basic_auth
    sender_settings()
    url = f"http://{address}:{port}"
    if as_json:
        say_json({"flower": url})
    else:
        say(f"Flower on {url}")
    from workers.app import app

    app.start(argv=["--quiet", "flower", f"--port={port}", f"--address={address}"])


def refuse_open_door(address: str, basic_auth: str, environ: Mapping[str, str]) -> None:
    """Flower can stop workers and shows every task: without a login it stays on this machine."""
    if basic_auth and ":" not in basic_auth:
        raise BadInputError("--basic-auth is written user:password")
    if address in LOOPBACK or basic_auth or any(environ.get(name) for name in LOGIN_VARIABLES):
        return
    raise BadInputError(
        f"Flower on {address} would be open to everyone: set {BASIC_AUTH_VARIABLE}=user:password, "
        "or leave --address out"
    )
