"""Redis forgets everything, or takes no writes."""

from tests.chaos.processes import ROLES
from tests.chaos.stack_under_test import StackUnderTest


def test_flushall_again_and_again_in_the_middle_of_a_run(stack: StackUnderTest) -> None:
    """Queues, chords, leases, batch records and inboxes vanish four times while calls are on the wire. Owners put back
    what they hold, claims wait one session TTL, sweeps send the pages again; no item is sent a second time."""
    stack.latency_ms(300)
    run = stack.start(100)
    for rows in (0, 10, 40, 80):
        stack.until_rows(run, rows)
        stack.until_sent(run, 1)
        stack.flush_all()
    stack.check(run)


def test_flushall_before_anybody_took_the_message(stack: StackUnderTest) -> None:
    """The message of a run is lost before control reads it; the client wrote the row first, so sweeps start the run."""
    run = stack.start(20)
    stack.flush_all()
    stack.check(run)


def test_a_read_only_redis_stops_calls_and_harms_nothing(stack: StackUnderTest) -> None:
    """A failover leaves a replica: reads work, writes are refused. While no claim can be taken nothing is sent; when
    writes are possible again the run goes on, no process having died for good: one that starts meanwhile waits."""
    stack.latency_ms(150)
    endings = {role: len(stack.endings(role)) for role in ROLES}
    run = stack.start(80)
    stack.until_rows(run, 10)
    with stack.redis(0) as client:
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        try:
            stack.kill("plays")
            stack.until_quiet(run, 3.0)
        finally:
            client.execute_command("REPLICAOF", "NO", "ONE")
    stack.check(run)
    new = {role: stack.endings(role)[endings[role] :] for role in ROLES}
    assert all(len(ends) <= 1 for ends in new.values()), new


def test_lease_and_batch_keys_deleted_while_calls_are_on_the_wire(stack: StackUnderTest) -> None:
    """Somebody removes leases and batch records, and nothing else, so nobody can tell that data was lost. Receipts,
    fences and the process's own book decide: nothing is charged twice."""
    stack.latency_ms(500)
    run = stack.start(60)
    for requests in (1, 10, 40):
        stack.until_sent(run, requests)
        with stack.redis(2) as state:
            names = [*state.scan_iter("lease:*"), *state.scan_iter("batch*"), *state.scan_iter("inbox:*")]
            if names:
                state.delete(*names)
    stack.check(run, one_key=False)


def test_the_broker_alone_loses_its_queues_again_and_again(stack: StackUnderTest) -> None:
    """The leases' database is untouched, so no epoch tells of it: slices that nobody took and posts that nobody
    answered are sent again in their time."""
    stack.latency_ms(200)
    run = stack.start(80)
    for rows in (0, 10, 30, 60):
        stack.until_rows(run, rows)
        with stack.redis(0) as broker:
            broker.flushdb()
    stack.check(run)
