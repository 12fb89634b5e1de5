"""What each demo is: its play, its table, what happens while it runs and what its rows must say."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from examples import demo_tables
from examples.approver import Approver, is_as_answered
from examples.demo_result import Verdict, says_so
from examples.demo_stack import DemoStack, Look
from examples.execution_api.public_web import ECHO_PATH
from runtime.client import PlayClient
from runtime.model.status import RunStatus, SheetRow

Meanwhile = Callable[[DemoStack, PlayClient, int, Callable[[str], None]], Look]
Afterwards = Callable[[DemoStack, PlayClient, RunStatus], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """`rows`: how many where nobody says; None: as many as there are. `fill_of`: the tool whose batches are told."""

    play: str
    what: str
    rows: int | None
    write: Callable[[Path, int | None], int]
    fill_of: str
    env: Mapping[str, str] = field(default_factory=dict)
    input: Callable[[DemoStack], Mapping[str, Any]] = lambda stack: {}
    meanwhile: Meanwhile | None = None
    afterwards: Afterwards = lambda stack, client, status: {}
    verdict: Verdict = says_so


def checker_of(stack: DemoStack) -> Mapping[str, Any]:
    """The URL that leads are checked with: a corner of the reference API that says what it was asked."""
    return {"checker": f"{stack.api_url}{ECHO_PATH}"}


def has_card(row: SheetRow) -> bool:
    """Whether the child play's card is about the row's own company."""
    title = (row.data.get("card") or {}).get("title", "")
    return title.startswith(f"{row.data['company']} (")


def report_run(stack: DemoStack, client: PlayClient, status: RunStatus) -> dict[str, Any]:
    """The run that the parent started, to its end."""
    if not isinstance(status.result, dict) or "report" not in status.result:
        return {"report": None}
    ended = stack.watch(client, status.result["report"])
    return {"report": ended.state.value}


DEMOS: Mapping[str, Demo] = {
    one.play: one
    for one in (
        Demo(
            play="airports",
            what="airports",
            rows=None,
            write=demo_tables.write_airports,
            fill_of="timezone_at",
        ),
        Demo(
            play="leads",
            what="leads",
            rows=500,
            write=demo_tables.write_leads,
            fill_of="domain_of",
            # The reference API is on this machine; fetches reach such an address only where an operator allows it.
            env={
                "PLAYLANE_EGRESS_ALLOW": "127.0.0.1",
                "EXECUTION_API_SECRETS": json.dumps({"CHECKER_KEY": "key-of-the-demo"}),
            },
            input=checker_of,
        ),
        Demo(
            play="approvals",
            what="requests",
            rows=60,
            write=demo_tables.write_requests,
            fill_of="echo",
            input=lambda stack: {"cool_off_s": 3},
            meanwhile=lambda stack, client, rows, say: (
                Approver(client=client, rows=rows, flower_url=stack.flower_url, say=say).look
            ),
            verdict=is_as_answered,
        ),
        Demo(
            play="parent",
            what="companies",
            rows=200,
            write=demo_tables.write_companies,
            fill_of="domain_of",
            afterwards=report_run,
            verdict=has_card,
        ),
    )
}
