"""Options that several commands share."""

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]
RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id, as `enqueue` printed it.")]
