"""A waterfall's leg that was asked, charged and had nothing keeps its cost in the run's usage and status."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from rich.console import Console

from examples.execution_api.mail_tools import archive_email, directory_email, pattern_email
from examples.plays.leads import email
from runtime.context.columns import column
from runtime.context.play_context import PlayContext
from runtime.engine.row_run import run_row
from runtime.engine.row_scope import RowScope
from runtime.engine.tool_calls import CallContext, ToolCalls
from runtime.model import json_value
from runtime.model.row import FinishedRow, InputRow
from runtime.model.run import NewRun
from runtime.model.status import RunStatus
from runtime.policy import insight
from runtime.postgres_store.pool import Pool
from runtime.postgres_store.runs import PostgresRuns
from runtime.postgres_store.status import PostgresStatus
from tests.integration.calling import tool_calls
from tests.integration.lane_world import LIMITS, LaneWorld, lane_world
from workers.cli.summary import summary

pytestmark = pytest.mark.servers
LEAD = {"name": "Ada Lovelace", "domain": "d4.example"}
PAID = {"archive_email": 3.0, "directory_email": 1.0, "pattern_email": 1.0}


@pytest.fixture
async def world(database_url: str, redis_url: str) -> AsyncIterator[LaneWorld]:
    async with lane_world(database_url, redis_url) as made:
        yield made


async def ended_row(tools: ToolCalls, run_id: str) -> FinishedRow:
    row = InputRow(position=0, row_key="ada", input=dict(LEAD))
    context = CallContext(org_id="o", run_id=run_id)
    scope = RowScope(tools, context, 0, LIMITS, [], dataset="leads", row_key="ada", namespace="leads")
    columns: Any = (column("leads", "email", email),)
    return await run_row(row, columns, PlayContext(None), scope)  # type: ignore[arg-type]


async def status_of(pool: Pool, run_id: str) -> RunStatus:
    found = await PostgresStatus(pool, LIMITS).run_status(run_id)
    assert found is not None
    return found


def shown(status: RunStatus) -> str:
    console = Console(width=120)
    with console.capture() as captured:
        for table in summary(status):
            console.print(table)
    return captured.get()


async def test_misses_that_were_charged_are_in_usage_and_status(world: LaneWorld, pool: Pool) -> None:
    assert [ask(LEAD)["email"] for ask in (directory_email, archive_email, pattern_email)] == [
        None, None, "alovelace@d4.example",
    ]  # fmt: skip
    for run_id in ("r1", "r2"):
        await PostgresRuns(pool, LIMITS).insert(NewRun(run_id=run_id, org_id="o", play="leads", input=None))
    async with tool_calls(world) as (_, tools):
        ended = await ended_row(tools, "r1")
        again = await ended_row(tools, "r2")
    value = json_value.loads(ended.data)["email"]
    legs = {leg: attempt["status"] for leg, attempt in value["waterfall_attempts"].items()}
    assert legs == {"directory": "no_result", "archive": "no_result", "pattern": "completed"}
    assert json_value.loads(again.data)["email"]["value"] == value["value"]

    status = await status_of(pool, "r1")
    assert {one.tool: one.credits for one in status.usage} == PAID
    assert sum(entry["credits"] for entry in world.ledger) == sum(PAID.values())
    assert insight.spending(status.usage).credits == 5
    costs = {line.split()[0]: line.split()[-1] for line in shown(status).splitlines()}
    assert (costs["directory_email"], costs["archive_email"]) == ("1", "3")
    # Nothing of it is paid again, and the run that was served it paid nothing.
    assert insight.spending((await status_of(pool, "r2")).usage).credits == 0
