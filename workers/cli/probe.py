"""`playlane probe`: is the worker of this machine or container ready?"""

from typing import Annotated

import httpx
import typer

from runtime.errors import BadInputError, ServiceUnreachableError
from runtime.policy.limits import DEFAULT_LIMITS
from workers.app import load_settings
from workers.cli.options import AsJson
from workers.cli.terminal import FAILED, say, say_json


def probe(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Its port; PLAYLANE_PROBE_PORT if not given.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Ask a worker here whether it takes work; exit code 0 = yes, 1 = no, with the reasons.

    A worker answers when it was started with PLAYLANE_PROBE_PORT. It is not ready while it is stopped, its loop
    hangs, its session or its heartbeat isn't renewed, or it has lost the broker.
    """
    port = port or load_settings().probe_port
    if not port:
        raise BadInputError(
            "no port to ask: start the worker with PLAYLANE_PROBE_PORT=8080 and set the same here, or pass --port"
        )
    try:
        answer = httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=DEFAULT_LIMITS.probe_s, trust_env=False)
        found = answer.json()
    except (httpx.HTTPError, ValueError) as error:
        raise ServiceUnreachableError(
            f"no worker answers on port {port} ({type(error).__name__}): it hasn't started, or has no probe"
        ) from None
    if as_json:
        say_json(found)
    else:
        say("ready" if found["ready"] else "not ready: " + "; ".join(found["reasons"]))
    if not found["ready"]:
        raise typer.Exit(FAILED)
