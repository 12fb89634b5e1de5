"""Rows of a slice that runs long wake in time, not at its end, whoever dies meanwhile."""

from pathlib import Path
from secrets import token_hex

import pytest

from runtime.model.run import RunState
from tests.chaos.ledger import Ledger
from tests.chaos.stack_under_test import StackUnderTest

ROWS = 8
WAITING = "select count(*) from row_waits w join datasets d using (dataset_id) where d.run_id = %s"
STATES = (
    "select r.state, count(*) from run_rows r join datasets d using (dataset_id)"
    " where d.run_id = %s group by 1 order by 1"
)
FENCES = (
    "select s.fence from slices s join datasets d using (dataset_id) where d.run_id = %s and s.state = 'open'"
)


@pytest.mark.parametrize("dies", [False, True], ids=["calm", "dying"])
def test_sleepers_end_while_their_slice_still_runs(stack: StackUnderTest, tmp_path: Path, dies: bool) -> None:
    tag, over = token_hex(3), tmp_path / "over"
    with stack.client(f"org-{tag}") as client:
        run_id = client.enqueue("slow_row", {"tag": tag, "rows": ROWS, "over": str(over)})
        stack.until(lambda: stack.sql(WAITING, run_id) == [(ROWS - 1,)], "all but the slow row wait")
        if dies:
            stack.until_restarted("rows", stack.kill("rows"))
        ended = [("completed", ROWS - 1), ("pending", 1)]
        stack.until(lambda: stack.sql(STATES, run_id) == ended, "the sleepers' ends", 30)
        assert stack.sql(FENCES, run_id) == [(2 if dies else 1,)], "all in one holding, which goes on"
        over.touch()
        stack.until(lambda: client.status(run_id).ended_at, "the end", 60)
        status = client.status(run_id)
    assert (status.state, status.result) == (RunState.COMPLETED, {"completed": ROWS, "failed": 0})
    ledger = Ledger.of_run(stack.api_url, run_id)
    assert ledger.charged_twice() == []
    assert len(set(ledger.charged())) == 2 * (ROWS - 1)
