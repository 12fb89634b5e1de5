"""Datasets as a whole: the database away, fail-fast across processes, and what thousands of rows leave behind."""

import signal
from secrets import token_hex
from typing import Any

from runtime.model.run import RunState
from tests.chaos.ledger import Ledger
from tests.chaos.stack_under_test import LEFT_S, StackUnderTest

AWAY_S = 10.0
MESSAGE_BYTES = 8 * 1024
SMALL, LARGE = 1_000, 4_000
MIB = 1024 * 1024


def test_the_database_is_killed_for_ten_seconds_in_mid_run(stack: StackUnderTest) -> None:
    """Rows that are finished and not written wait in the writer, calls that were answered wait for their receipts."""
    stack.latency_ms(100)
    run = stack.start(120)
    stack.until_rows(run, 20)
    with stack.without_postgres():
        stack.pause_s(AWAY_S)
    stack.check(run, timeout_s=90)


def counts_of(stack: StackUnderTest, run_id: str) -> dict[str, int]:
    found = stack.sql(
        "select r.state, count(*) from run_rows r join datasets d using (dataset_id) where d.run_id = %s group by 1",
        run_id,
    )
    return dict(found)


def started(stack: StackUnderTest, play: str, **input: Any) -> str:
    with stack.client(f"org-{input['tag']}") as client:
        return client.enqueue(play, input)


def ended(stack: StackUnderTest, run_id: str) -> Any:
    with stack.client() as client:
        stack.until(lambda: client.status(run_id).ended_at, f"the end of {run_id}")
        return client.status(run_id)


def test_one_failed_row_ends_a_dataset_across_processes(stack: StackUnderTest) -> None:
    """The holder of other slices is killed while the dataset fails: its rows are cancelled by sweeps."""
    stack.latency_ms(100)
    tag = token_hex(3)
    with stack.second("rows"):
        run_id = started(stack, "fail_fast", tag=tag, rows=300, broken=47)
        stack.until(lambda: counts_of(stack, run_id).get("failed"), "a failed row")
        stack.kill("rows")
        status = ended(stack, run_id)
    assert status.state is RunState.COMPLETED
    assert status.result == {"row": f"{tag}/rows/0047", "column": "fragile", "code": "resolver_error"}
    ((state, total, settled),) = stack.sql(
        "select state, pages_seeded, pages_settled from datasets where run_id = %s", run_id
    )
    assert (state, settled) == ("failed", total)
    counts = counts_of(stack, run_id)
    assert set(counts) <= {"completed", "failed", "cancelled"}
    assert counts["failed"] == 1
    assert counts["cancelled"] > 100, "what was not begun is not run"
    completed = counts.get("completed", 0)
    kept = stack.sql("select count(*) from sheet_rows where org_id = %s", f"org-{tag}")
    assert kept == [(completed + 1,)], "finished rows and the failed one are kept"
    ledger = Ledger.of_run(stack.api_url, run_id)
    assert ledger.charged_twice() == []
    assert len(ledger.charged()) < 300
    stack.until_ready()


def test_a_cancelled_run_takes_its_failing_dataset_along(stack: StackUnderTest) -> None:
    stack.latency_ms(500)
    run_id = started(stack, "fail_fast", tag=token_hex(3), rows=60, broken=3)
    stack.until(lambda: counts_of(stack, run_id), "rows")
    with stack.client() as client:
        client.cancel(run_id)
    assert ended(stack, run_id).state is RunState.CANCELLED

    def settled() -> bool:
        open_rows = {"pending", "running", "waiting"} & set(counts_of(stack, run_id))
        pages = stack.sql(
            "select count(*) from pages join datasets using (dataset_id)"
            " where run_id = %s and pages.state <> 'settled'",
            run_id,
        )
        return not open_rows and pages == [(0,)]

    stack.until(settled, "all rows ended and all pages settled")


def largest_message(stack: StackUnderTest) -> int:
    """The largest message in any queue of the broker."""
    with stack.redis(0) as broker:
        lists: Any = list(broker.scan_iter(_type="list"))
        messages: list[Any] = [text for name in lists for text in broker.lrange(name, 0, -1)]  # type: ignore[misc]
    assert not any("xxxxxxxx" in text for text in messages), "row data never travels"
    return max((len(text) for text in messages), default=0)


def redis_memory(stack: StackUnderTest) -> int:
    with stack.redis(0) as client:
        info: Any = client.info("memory")
        return int(info["used_memory"])


def run_pure(stack: StackUnderTest, rows: int) -> tuple[int, int]:
    """(largest message, most Redis memory) of a run; its first messages are looked at before anybody takes them."""
    pid = stack.signal("rows", signal.SIGSTOP)
    try:
        run_id = started(stack, "pure", tag=token_hex(3), rows=rows)
        largest = stack.until(lambda: largest_message(stack), "a message to the rows' queue")
        stack.until(lambda: len(counts_of(stack, run_id)), "rows")
        largest = max(largest, largest_message(stack))
    finally:
        stack.signal("rows", signal.SIGCONT)
    assert pid == stack.pid("rows")
    most = 0

    def look() -> bool:
        nonlocal most
        most = max(most, redis_memory(stack))
        return counts_of(stack, run_id) == {"completed": rows}

    stack.until(look, f"the rows of {run_id}")
    assert ended(stack, run_id).result == {"completed": rows}
    return largest, most


def test_messages_and_redis_stay_small_however_many_rows_there_are(stack: StackUnderTest) -> None:
    """Pages are fed in, not all at once; after the end no key of the run is left that doesn't expire."""
    small_message, small_memory = run_pure(stack, SMALL)
    large_message, large_memory = run_pure(stack, LARGE)
    assert small_message < MESSAGE_BYTES
    assert abs(large_message - small_message) < 64, "a few digits at most"
    assert large_memory - small_memory < 16 * MIB
    stack.until(lambda: stack._left_behind() == [], "nothing left in Redis", LEFT_S)
