"""`playlane report RUN --html FILE`."""

from pathlib import Path
from typing import Annotated

import typer

from runtime.errors import BadInputError
from workers.cli.connection import connect
from workers.cli.options import AsJson, RunId
from workers.cli.terminal import say, say_json
from workers.report.page import page


def report(
    run_id: RunId,
    html: Annotated[Path, typer.Option("--html", help="File to write the page to.")] = Path("report.html"),
    as_json: AsJson = False,
) -> None:
    """Write what became of a run, over time and in sum, as one page for a browser."""
    with connect() as client:
        status = client.status(run_id)
        text = page(status, client.insight(status), client.history(status))
    path = html.expanduser().absolute()
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadInputError(
            f"{path} can't be written ({error.strerror}): name another file with --html"
        ) from error
    if as_json:
        say_json({"run_id": run_id, "html": str(path)})
    else:
        say(f"{path} shows run {run_id}, which is {status.state.value}")
