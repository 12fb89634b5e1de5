"""Rows and bodies that sleep or wait for events, while nobody runs, Redis forgets and everything starts again."""

from secrets import token_hex

from runtime.model.run import RunState
from tests.chaos.ledger import Ledger
from tests.chaos.processes import ROLES, continue_all, stop_all
from tests.chaos.stack_under_test import StackUnderTest

ROWS = 20
SLEEP_S = 4.0
WAITING = "select count(*) from row_waits w join datasets d using (dataset_id) where d.run_id = %s"
KINDS = (
    "select b.kind, b.state, count(*) from row_boundaries b join datasets d using (dataset_id)"
    " where d.run_id = %s and b.key like 'rested:%%' group by 1, 2 order by 1"
)


def test_waits_outlive_all_workers_and_redis(stack: StackUnderTest) -> None:
    """Half of twenty rows sleep, half wait for an event. All workers stop, Redis is flushed, the sleeps pass; one event
    is stored while nobody runs, another told when workers are back. Each row wakes once, no call is paid twice."""
    tag = token_hex(3)
    with stack.client(f"org-{tag}") as client:
        run_id = client.enqueue("waiting_rows", {"tag": tag, "rows": ROWS, "sleep_s": SLEEP_S})
        stack.until(lambda: stack.sql(WAITING, run_id) == [(ROWS,)], "all rows wait")
        stack.until(
            lambda: stack.sql("select state from runs where run_id = %s", run_id) == [("waiting",)],
            "body rests",
        )
        assert stack.sql(KINDS, run_id) == [("event", "armed", ROWS // 2), ("sleep", "armed", ROWS // 2)]
        pids = [stack.pid(role) for role in ROLES]
        stop_all(pids)
        try:
            client.deliver(f"go:{tag}", {"by": "ann"}, event_id=f"go-{tag}")
            stack.pause_s(SLEEP_S + 1)
            stack.flush_all()
        finally:
            for role in ROLES:
                stack.kill(role)
            continue_all(pids)
        for role, pid in zip(ROLES, pids, strict=True):
            stack.until_restarted(role, pid)
        client.deliver(f"last:{tag}", "done")
        client.deliver(f"ask_person:body:{tag}", {"answer": "body"})
        client.deliver(f"go:{tag}", {"by": "somebody else"}, event_id=f"go-{tag}")
        asked = "select count(*) from row_boundaries where event_key = %s and state = 'armed'"
        stack.until(
            lambda: stack.sql(asked, f"ask_person:go:{tag}") == [(ROWS // 2,)], "all persons asked", 60
        )
        client.deliver(f"ask_person:go:{tag}", {"answer": "row"})
        stack.until(lambda: client.status(run_id).ended_at, "the end", 90)
        status = client.status(run_id)
    assert status.state is RunState.COMPLETED, status.error
    answers = {"last": "done", "asked": "body", "job": f"v:body:{tag}"}
    assert status.result == {"completed": ROWS, "failed": 0, **answers}
    assert stack.sql(KINDS, run_id) == [("event", "resolved", ROWS // 2), ("sleep", "resolved", ROWS // 2)]
    sheet = stack.sql("select data from sheet_rows where org_id = %s", f"org-{tag}")
    told = {data["rested"] == f"v:{data['name']}:ann" for (data,) in sheet if not data["is_sleeper"]}
    assert told == {True}
    assert all(
        data["later"] == (f"v:job:{data['name']}" if data["is_sleeper"] else "row") for (data,) in sheet
    )
    ledger = Ledger.of_run(stack.api_url, run_id)
    assert [item for item in ledger.charged_twice() if not item.startswith("job ")] == []  # polls are free
    calls, jobs = ROWS, ROWS // 2 + 1
    charged = "select sum(credits) from run_usage where run_id = %s"
    assert stack.sql(charged, run_id) == [(calls + jobs,)]
