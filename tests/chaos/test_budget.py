"""A run never pays more than its budget, and goes on when it is given more."""

import json
import os
import subprocess
import sys
from secrets import token_hex
from typing import Any

from runtime.model.run import RunState
from tests.chaos.runs import StartedRun
from tests.chaos.stack_under_test import StackUnderTest


def start(stack: StackUnderTest, rows: int, **options: Any) -> StartedRun:
    tag = token_hex(3)
    with stack.client(f"org-{tag}") as client:
        run_id = client.enqueue("capped", {"tag": tag, "rows": rows}, options=options)
    return StartedRun(run_id=run_id, org_id=f"org-{tag}", tag=tag, rows=rows)


def budget(stack: StackUnderTest, run: StartedRun, *options: str) -> dict[str, Any]:
    """As somebody at a shell sees it."""
    env = {
        **os.environ,
        "PLAYLANE_DATABASE_URL": stack.servers.database_url,
        "PLAYLANE_REDIS_URL": stack.servers.redis_url,
    }
    command = [sys.executable, "-m", "workers.cli.main", "budget", run.run_id, *options, "--json"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def charged(stack: StackUnderTest, run: StartedRun) -> int:
    counts = stack.ledger(run).charged()
    assert stack.ledger(run).charged_twice() == []
    return sum(counts.values())


def until_charged(stack: StackUnderTest, run: StartedRun, credits: int) -> None:
    """Rows wait for budget as soon as others reserved it; the calls of those may be on the wire still."""
    stack.until(lambda: charged(stack, run) >= credits, f"{credits} charged credits")
    assert charged(stack, run) == credits


def waiting(stack: StackUnderTest, run: StartedRun) -> tuple[int, int, str]:
    with stack.client() as client:
        found, state = client.budget(run.run_id), client.status(run.run_id).state
    return (found.waiting_rows, found.waiting_calls, state.value) if found else (0, 0, state.value)


def test_a_run_waits_at_its_cap_and_goes_on_when_that_is_raised(stack: StackUnderTest) -> None:
    """30 rows of a credit each under a play's cap of 10: 10 are paid for, 20 rows wait and hold nothing."""
    run = start(stack, 30)
    with stack.describing(run):
        stack.until(lambda: waiting(stack, run) == (20, 0, "waiting"), "20 rows that wait for budget")
        until_charged(stack, run, 10)
        stack.flush_all()
        found = budget(stack, run, "--credits", "30")
        assert found["accounts"][0]["credits"] == {"cap": 30, "used": 10, "reserved": 0}
        # The rows take what there is; now the body's own call waits.
        stack.until(lambda: waiting(stack, run) == (0, 1, "waiting"), "the body's call that waits for budget")
        until_charged(stack, run, 30)
        budget(stack, run, "--credits", "31")
        status = stack.until_ended(run)
        assert status.state is RunState.COMPLETED
        assert status.result["completed"] == 30
        assert charged(stack, run) == 31
        end = budget(stack, run)
    assert (end["waiting_rows"], end["waiting_calls"]) == (0, 0)
    assert end["accounts"][0]["credits"] == {"cap": 31, "used": 31, "reserved": 0}
    assert end["accounts"][0]["tool_calls"]["used"] == 31


def test_deaths_and_lost_data_never_pass_a_cap_nor_leave_room_unused(stack: StackUnderTest) -> None:
    """Lane processes die with calls in the queue and on the wire, and Redis loses everything, twice."""
    stack.latency_ms(300)
    run = start(stack, 60, max_credits=25)
    with stack.describing(run):
        stack.until_sent(run, 1)
        stack.kill("lanes")
        stack.flush_all()
        stack.until(lambda: waiting(stack, run)[::2] == (35, "waiting"), "35 rows that wait for budget")
        until_charged(stack, run, 25)
        budget(stack, run, "--credits", "40")
        stack.until(lambda: charged(stack, run) > 25, "a row that goes on")
        stack.kill("lanes")
        stack.kill("rows")
        stack.flush_all()
        stack.until(lambda: waiting(stack, run)[::2] == (20, "waiting"), "20 rows that wait for budget")
        until_charged(stack, run, 40)
        budget(stack, run, "--credits", "100")
        status = stack.until_ended(run)
        assert (status.state, status.result["completed"]) == (RunState.COMPLETED, 60)
        assert charged(stack, run) == 61
        account = budget(stack, run)["accounts"][0]
    assert account["credits"] == {"cap": 100, "used": 61, "reserved": 0}
