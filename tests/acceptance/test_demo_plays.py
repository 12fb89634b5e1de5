"""The example plays on one stack: what each leaves in sheet, receipts and ledger, seen from outside."""

import os
import shlex
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import chdir
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from examples.approver import answer_to
from examples.demo import played, sheet_of
from examples.demo_plays import DEMOS
from examples.demo_stack import DemoStack, demo_stack
from examples.demo_tables import write_airports
from runtime.client import PlayClient
from runtime.errors import ServersMissingError
from runtime.model.status import RunStatus
from tests.readme import code_of, commands_of
from workers.stack.servers import DATABASE_VARIABLE, REDIS_VARIABLE
from workers.stack.stack import DEFAULT_MODULES, MODULES_VARIABLE, PLAYLANE

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(180)]
ROWS = 24
SECRET = "key-of-the-demo"
KEYS = ["status", "rows", "failed", "calls", "batches", "fill", "cached", "seconds", "agree"]
Query = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoStack]:
    env = {name: value for demo in DEMOS.values() for name, value in demo.env.items()}
    with chdir(tmp_path_factory.mktemp("demo")):
        Path("myplays.py").write_text(code_of("playlane")[0])
        Path("companies.csv").write_text(code_of("Write a play", "csv")[0])
        try:
            with demo_stack(env={**env, MODULES_VARIABLE: f"{DEFAULT_MODULES},myplays"}) as running:
                yield running
        except ServersMissingError as error:
            pytest.skip(str(error))


@pytest.fixture
def client(stack: DemoStack) -> Iterator[PlayClient]:
    with stack.client() as client:
        yield client


@pytest.fixture
def query(stack: DemoStack) -> Iterator[Query]:
    with psycopg.connect(stack.servers.database_url, autocommit=True) as connection:
        yield lambda sql, *values: connection.execute(sql.encode(), values).fetchall()


def runs_of(client: PlayClient, query: Query) -> dict[str, RunStatus]:
    """The org's runs by play; of two of one play the first."""
    found = query("select run_id from runs where org_id = %s order by created_at desc", client.org_id)
    return {status.play: status for status in (client.status(run_id) for (run_id,) in found)}


def ledger_of(stack: DemoStack, *runs: RunStatus) -> list[dict[str, Any]]:
    """What was asked of providers for the runs."""
    entries = httpx.get(f"{stack.api_url}/_ledger", trust_env=False).json()["entries"]
    ids = {run.run_id for run in runs}
    return [entry for entry in entries if ids & set(entry["run_ids"])]


def charged(entries: list[dict[str, Any]]) -> Counter[str]:
    """How often each item was paid for, by tool and item."""
    return Counter(
        f"{entry['operation'].removesuffix('_batch')} {item}"
        for entry in entries
        for item in entry["charged_items"]
    )


def test_leads_pass_over_a_provider_that_has_no_credit(
    stack: DemoStack, client: PlayClient, query: Query
) -> None:
    result = played(DEMOS["leads"], stack, client, rows=ROWS, again=True)
    assert list(result)[: len(KEYS)] == KEYS
    assert (result["status"], result["rows"], result["failed"], result["agree"]) == ("completed", ROWS, 0, 1)
    run = runs_of(client, query)["leads"]
    rows = [row.data for row in sheet_of(client, run)]
    legs = [row["email"]["waterfall_attempts"] for row in rows]
    unavailable = [one["archive"] for one in legs if one["archive"]["status"] == "unavailable"]
    assert {leg["category"] for leg in unavailable} == {"provider_account"}
    assert {leg["statusCode"] for leg in unavailable} == {402}
    assert {one["directory"]["status"] for one in legs} == {"completed", "no_result"}
    assert {row["email"]["from"] for row in rows} >= {"directory", "archive", "pattern"}
    assert "Notes" not in rows[0] and "Company" not in rows[0]
    assert all(row["check"]["domain"] == row["domain"] for row in rows)

    entries = ledger_of(stack, run)
    assert max(charged(entries).values()) == 1
    assert sum(entry["status"] == 402 for entry in entries) == len(unavailable)
    # Of the second run only what nobody could answer was asked again.
    assert (result["again"], result["again_calls"]) == ("completed", len(unavailable))

    fetched = query(
        "select convert_from(output, 'utf8') from receipts where org_id = %s and tool = 'ctx.fetch'",
        client.org_id,
    )
    assert len(fetched) == ROWS
    assert all(
        "Bearer [secret CHECKER_KEY]" in text for (text,) in fetched
    )  # it was sent, and is kept nowhere
    assert not [table for table in tables(query) if holds(query, table, SECRET)]


def test_approvals_hold_nothing_while_they_wait(
    stack: DemoStack, client: PlayClient, query: Query, capsys: pytest.CaptureFixture[str]
) -> None:
    result = played(DEMOS["approvals"], stack, client, rows=ROWS)
    assert list(result) == KEYS
    assert (result["status"], result["rows"], result["failed"], result["agree"]) == ("completed", ROWS, 0, 1)
    assert "the run waits, and no worker has a task" in capsys.readouterr().out
    run = runs_of(client, query)["approvals"]
    said = [answer_to(number) for number in range(1, ROWS + 1)]
    outcomes = Counter("expired" if one is None else _outcome(one) for one in said)
    assert run.result["counts"] == dict(outcomes)
    waits = query(
        "select b.kind, b.state, count(*) from row_boundaries b join datasets d using (dataset_id)"
        " where d.run_id = %s group by 1, 2 order by 1, 2",
        run.run_id,
    )
    assert waits == [
        ("event", "resolved", outcomes["approved"] + outcomes["declined"]),
        ("event", "timed_out", outcomes["expired"]),
        ("sleep", "resolved", outcomes["approved"]),
    ]
    paid = charged(ledger_of(stack, run))
    assert (len(paid), set(paid.values())) == (outcomes["approved"], {1})


def test_a_parent_has_cards_made_inside_its_rows_and_a_report_made_by_a_run_of_its_own(
    stack: DemoStack, client: PlayClient, query: Query
) -> None:
    result = played(DEMOS["parent"], stack, client, rows=ROWS)
    assert list(result) == [*KEYS, "report"]
    assert (result["status"], result["rows"], result["failed"], result["agree"]) == ("completed", ROWS, 0, 1)
    assert result["report"] == "completed"
    runs = runs_of(client, query)
    assert set(runs) == {"parent", "country_report"}
    cards = [row.data["card"] for row in sheet_of(client, runs["parent"])]
    report = [row.data for row in sheet_of(client, runs["country_report"])]
    assert len({card["title"] for card in cards}) == ROWS
    assert len(report) == len({card["country"] for card in cards})
    assert all(row["official_name"] for row in report)
    assert sum(tool.items for tool in runs["country_report"].usage) == 0
    assert set(charged(ledger_of(stack, *runs.values())).values()) == {1}
    titles = query("select count(*) from receipts where org_id = %s and tool = 'ctx.step'", client.org_id)
    assert titles == [(ROWS,)]


def test_the_readme_followed_to_the_letter(stack: DemoStack) -> None:
    """`playlane up` is this stack; the rest is typed as it stands there."""
    env = {
        **os.environ,
        DATABASE_VARIABLE: stack.servers.database_url,
        REDIS_VARIABLE: stack.servers.redis_url,
        MODULES_VARIABLE: "myplays",
    }
    up, *typed = commands_of("Write a play")
    assert up == "PLAYLANE_PLAY_MODULES=myplays playlane up"
    said: list[str] = []
    for line in typed:
        command = [*PLAYLANE, *shlex.split(line)[1:]]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        said.append(done.stdout)
    assert "run first completed: 2 of 2 rows completed" in said[0]
    assert "borealis.co.uk" in said[1] and "2 rows in first-companies.csv" in said[2]


def test_the_readmes_client(stack: DemoStack, capsys: pytest.CaptureFixture[str]) -> None:
    write_airports(Path("airports.csv"), 5)
    code = code_of("Start runs from another service")[0]
    code = code.replace("redis://…/0", stack.servers.redis_url)
    exec(code.replace("postgresql://…", stack.servers.database_url), {})
    assert capsys.readouterr().out.splitlines()[-1] == "completed"


def _outcome(said: dict[str, object]) -> str:
    return "approved" if said["approved"] else "declined"


def tables(query: Query) -> list[str]:
    found = query("select tablename from pg_tables where schemaname = current_schema() order by 1")
    return [name for (name,) in found]


def holds(query: Query, table: str, text: str) -> bool:
    """Whether the text stands anywhere in the table."""
    return bool(query(f'select 1 from "{table}" t where t::text like %s limit 1', f"%{text}%"))
