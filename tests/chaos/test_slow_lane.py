"""Rows whose turn at a lane is far away wait outside their slices, whoever dies meanwhile."""

from secrets import token_hex

import pytest

from runtime.model.run import RunState
from tests.chaos.ledger import Ledger
from tests.chaos.stack_under_test import StackUnderTest

ROWS, RATE = 120, 10


@pytest.mark.parametrize("dying", [(), ("rows", "lanes", "control")], ids=["calm", "dying"])
def test_rows_wait_for_their_turn_and_all_are_paid_once(
    stack: StackUnderTest, dying: tuple[str, ...]
) -> None:
    """The lane takes ten calls a second and holds one second's worth; three pages of twenty rows are out. What is not
    held waits in Postgres, and comes back at the lane's rate, so that the lane is hardly ever idle."""
    tag = token_hex(3)
    with stack.client(f"org-{tag}") as client:
        run_id = client.enqueue("slow_lane", {"tag": tag, "rows": ROWS})
        waiting = "select count(*) from row_waits w join datasets d using (dataset_id) where d.run_id = %s"
        stack.until(lambda: stack.sql(waiting, run_id)[0][0] > RATE, "rows that wait")
        for role in dying:
            stack.until_restarted(role, stack.kill(role))
        stack.until(lambda: client.status(run_id).ended_at, "the end", 90)
        status = client.status(run_id)
    assert (status.state, status.result) == (RunState.COMPLETED, {"completed": ROWS, "failed": 0})
    assert stack.sql(waiting, run_id) == [(0,)]
    ledger = Ledger.of_run(stack.api_url, run_id)
    assert ledger.charged_twice() == []
    assert len(set(ledger.charged())) == ROWS
    if not dying:
        times = sorted(entry["time"] for entry in ledger.entries)
        assert (ROWS - 1) / (times[-1] - times[0]) > RATE / 2
