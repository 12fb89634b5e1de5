"""Two hundred rows in a process that is killed again and again: what it shares belongs to its own life alone."""

from pathlib import Path
from secrets import token_hex

import httpx

from runtime.model.run import RunState
from tests.chaos.ledger import Ledger
from tests.chaos.process_plays import BLOCKING, FORGETTING
from tests.chaos.stack_under_test import StackUnderTest

ROWS, EVERY = 200, 60
MOST_CONNECTIONS = 120
LOG = Path(".playlane/logs/chaos/rows.log")


def open_at_the_api(stack: StackUnderTest) -> int:
    """Connections besides the one that asks."""
    return httpx.get(f"{stack.api_url}/_web/connections", trust_env=False).json()["open"] - 1


def test_many_rows_in_one_process(stack: StackUnderTest) -> None:
    tag = token_hex(3)
    logged = LOG.stat().st_size if LOG.exists() else 0
    most = 0

    def ended(count: int) -> bool:
        nonlocal most
        most = max(most, open_at_the_api(stack))
        query = (
            "select count(*) from run_rows r join datasets d using (dataset_id) where d.run_id = %s"
            " and r.state in ('completed', 'failed')"
        )
        return stack.sql(query, run_id)[0][0] >= count

    with stack.client(f"org-{tag}") as client:
        given = {"tag": tag, "rows": ROWS, "url": f"{stack.api_url}/_web/echo"}
        run_id = client.enqueue("many_rows", given)
        for count in range(EVERY, ROWS, EVERY):
            stack.until(lambda count=count: ended(count), f"{count} rows")
            stack.until_restarted("rows", stack.kill("rows"))
        stack.until(lambda: ended(ROWS) and client.status(run_id).ended_at, "the end", 90)
        status = client.status(run_id)

    assert (status.state, status.result) == (RunState.COMPLETED, {"completed": ROWS - 1, "failed": 1})
    failed = stack.sql(
        "select row_key, error from run_rows r join datasets d using (dataset_id)"
        " where d.run_id = %s and r.state = 'failed'",
        run_id,
    )
    ((_, error),) = failed
    assert "a coroutine was returned and never awaited" in error["message"]
    assert f"{FORGETTING:04d}" in repr(failed)
    ledger = Ledger.of_run(stack.api_url, run_id)
    assert ledger.charged_twice() == []

    said = [text for (text,) in stack.sql("select message from run_logs where run_id = %s", run_id)]
    place = f'column "work" of dataset "rows" in play "many_rows" (row {BLOCKING})'
    assert any(text.startswith(place) and "process_plays.py" in text for text in said), said
    assert any('column "work" left 1 task(s) running' in text and "forgotten" in text for text in said), said

    log = LOG.read_bytes()[logged:].decode(errors="replace")
    assert "different loop" not in log
    assert "Event loop is closed" not in log
    assert most <= MOST_CONNECTIONS
    stack.until(lambda: open_at_the_api(stack) == 0, "no connection at the provider", 30)
    assert stack.sql("select count(*) from pg_stat_activity where datname = current_database()")[0][0] <= 60
