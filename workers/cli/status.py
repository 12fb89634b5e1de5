"""`playlane status RUN`."""

from rich.console import Console
from rich.text import Text

from runtime.model import json_value
from runtime.model.run import ENDED_RUNS
from runtime.model.status import RunStatus
from workers.cli.budget import budget_json, waiting_line
from workers.cli.connection import connect
from workers.cli.insight_view import insight_lines
from workers.cli.options import AsJson, RunId
from workers.cli.summary import plain, status_json, summary
from workers.cli.terminal import say_json
from workers.cli.views import tell_end

RESULT_CHARS = 500


def status(run_id: RunId, as_json: AsJson = False) -> None:
    """Print how a run stands: rows, failures, calls, result or error."""
    with connect() as client:
        found, budget = client.status(run_id), client.budget(run_id)
        meaning = client.insight(found)
    if as_json:
        say_json({**status_json(found), "budget": budget_json(run_id, budget), "insight": plain(meaning)})
        return
    console = Console()
    tell(console, found)
    for text in insight_lines(meaning):
        console.print(Text(text), soft_wrap=True)
    line = waiting_line(budget) if budget is not None and found.state not in ENDED_RUNS else ""
    if line:
        console.print(Text(line, style="yellow"), soft_wrap=True)


def tell(console: Console, found: RunStatus) -> None:
    """The run for people; a long result is cut."""
    head = f"run {found.run_id}: play {found.play}, {found.state.value}, attempt {found.attempt}"
    console.print(Text(head), soft_wrap=True)
    if found.state in ENDED_RUNS:
        tell_end(console, found)
    else:
        for table in summary(found):
            console.print(table)
    if found.result is not None:
        text = json_value.dumps(found.result).decode()
        shown = text if len(text) <= RESULT_CHARS else text[:RESULT_CHARS] + "… (--json prints all)"
        console.print(Text(f"result: {shown}"), soft_wrap=True)
