"""Messages that come twice, and runs that come twice."""

from collections import Counter

from tests.chaos.ledger import ledger_name
from tests.chaos.plays import expected_items
from tests.chaos.runs import PLAY
from tests.chaos.stack_under_test import StackUnderTest


def test_doubled_messages_are_harmless(stack: StackUnderTest) -> None:
    """Every message comes several times, for pages that are done, out, or don't exist: the tables decide, and the run
    is what it would have been."""
    stack.latency_ms(100)
    run = stack.start(60)
    with stack.client(run.org_id) as client, stack.sender() as send:
        for _ in range(5):
            client.enqueue(PLAY, {"tag": run.tag, "rows": 60}, run_id=run.run_id)
            send("plays.resume", "plays", run_id=run.run_id)
        for rows in (1, 20, 50):
            stack.until_rows(run, rows)
            for (dataset,) in stack.sql("select dataset_id from datasets where run_id = %s", run.run_id):
                for page in (0, 1, 2, 99):
                    for _ in range(2):
                        send(
                            "datasets.settle_page",
                            "control",
                            run_id=run.run_id,
                            dataset_id=dataset,
                            page=page,
                        )
                        for number in (0, 1, 7):
                            where = {
                                "run_id": run.run_id,
                                "dataset_id": dataset,
                                "page": page,
                                "number": number,
                            }
                            send("rows.run_slice", "rows", **where)
            send("plays.resume", "plays", run_id=run.run_id)
            send("plays.resume", "plays", run_id="no such run")
            send("datasets.settle_page", "control", run_id="no such run", dataset_id=10**9, page=0)
    status = stack.check(run)
    assert status.attempt <= 4


def test_two_runs_at_once_pay_once_even_when_the_owner_dies_in_flight(stack: StackUnderTest) -> None:
    """Both runs ask for the same calls at the same time; whichever post comes first owns a key, the others follow.
    The lane worker dies with batches on the wire: they go out again under the same keys, for both."""
    stack.latency_ms(250)
    first = stack.start(100)
    second = stack.start(100, again=first)
    stack.until_sent(first, 1)
    stack.until_restarted("lanes", stack.kill("lanes"))
    for run in (first, second):
        status = stack.until_ended(run)
        assert (status.state, status.result["first"], status.result["second"]) == ("completed", 100, 50)
    requests = {
        (entry["time"], entry["batch_key"]): entry
        for run in (first, second)
        for entry in stack.ledger(run).entries  # a request may carry calls of both
    }
    charged = Counter(ledger_name(item) for one in requests.values() for item in one["charged_items"])
    assert set(charged) == expected_items(first.tag, 100) and set(charged.values()) == {1}


def test_a_second_run_over_the_same_input_is_free_and_says_so(stack: StackUnderTest) -> None:
    """Receipts are shared by all runs of an org: the second run sends nothing, and every cell says so."""
    first = stack.start(60)
    stack.check(first)
    second = stack.start(60, again=first)
    status = stack.until_ended(second)
    assert (status.state, status.result["first"], status.result["second"]) == ("completed", 60, 30)
    assert stack.ledger(second).entries == []
    assert stack.ledger(first).charged_twice() == []
    assert set(stack.ledger(first).charged()) == expected_items(first.tag, 60)
    usage = {tool.tool: tool for tool in status.usage}
    assert (usage["echo"].items, usage["echo"].credits, usage["country_facts"].items) == (0, 0, 0)
    assert (usage["echo"].cached, usage["country_facts"].cached) == (2 * 90 + 2, 60)
    metas = [
        meta for (meta,) in stack.sql("select cell_meta from sheet_rows where run_id = %s", second.run_id)
    ]
    assert len(metas) == 90
    assert {cell["state"] for meta in metas for cell in meta.values()} == {"cached"}
