"""A row or a body that kills every process that runs it ends alone; everything else goes on."""

from secrets import token_hex

from runtime.model.run import RunState
from runtime.model.status import RunStatus
from tests.chaos.ledger import Ledger
from tests.chaos.stack_under_test import StackUnderTest
from tests.waiting import wait_until

POISONED_S = 120.0


def end_of(stack: StackUnderTest, run_id: str) -> RunStatus:
    """Without forgiving deaths, as the other tests do: the supervisor must not give up on its own."""

    def look() -> RunStatus | None:
        assert stack.supervisor.failure is None, stack.supervisor.failure
        status = client.status(run_id)
        return status if status.ended_at else None

    with stack.client() as client:
        found = wait_until(look, POISONED_S, f"the end of {run_id}")
        assert found is not None
        return found


def test_one_row_of_a_hundred_kills_its_process_and_99_complete(stack: StackUnderTest) -> None:
    """Two deaths make the rows of its slice suspects, which then run one by one; two more are its own, and it fails.
    Four deaths in a minute: one less than those at which the local supervisor stops everything."""
    tag, deaths = token_hex(3), len(stack.endings("rows"))
    with stack.client(f"org-{tag}") as client:
        run_id = client.enqueue("poisoned", {"tag": tag, "rows": 100, "deadly": 37})
    status = end_of(stack, run_id)
    assert status.state is RunState.COMPLETED
    assert status.result == {"completed": 99, "failed": 1}
    assert stack.endings("rows")[deaths:] == ["was ended by SIGKILL"] * 4
    ((state, crashes, error),) = stack.sql(
        "select r.state, r.crash_count, r.error from run_rows r join datasets d using (dataset_id)"
        " where d.run_id = %s and r.row_key like %s",
        run_id,
        "%/0037%",
    )
    assert (state, crashes, error["code"]) == ("failed", 4, "worker_died")
    ledger = Ledger.of_run(stack.api_url, run_id)
    assert ledger.charged_twice() == []


def test_a_body_that_kills_its_process_fails_its_run(stack: StackUnderTest) -> None:
    """Its one call is progress; then five attempts in a row die without any."""
    tag, deaths = token_hex(3), len(stack.endings("plays"))
    with stack.client(f"org-{tag}") as client:
        run_id = client.enqueue("deadly_body", {"tag": tag})
        stack.until(lambda: client.status(run_id).ended_at, "the run's failure", POISONED_S)
        status = client.status(run_id)
    assert status.state is RunState.FAILED
    assert status.error is not None
    assert status.error["code"] == "worker_died"
    assert len(stack.endings("plays")) - deaths == 5
