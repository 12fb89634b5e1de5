"""Processes that stop without dying, and wake up when others have taken their work."""

import signal

from tests.chaos.processes import continue_all, stop_all
from tests.chaos.stack_under_test import StackUnderTest


def test_a_row_worker_frozen_beyond_its_session_may_write_nothing(stack: StackUnderTest) -> None:
    """It stops with calls in flight; its session ends, another worker takes its slices and finishes them from
    receipts. Awake again, all that it still wants to write is refused, and it ends so that it may begin anew."""
    stack.latency_ms(300)
    with stack.second("rows"):
        run = stack.start(80)
        stack.until_rows(run, 10)
        frozen = stack.signal("rows", signal.SIGSTOP)
        stack.until_session_ended("rows", frozen)
        stack.until_rows(run, 60)
        stack.signal("rows", signal.SIGCONT)
        stack.until_restarted("rows", frozen)
        stack.check(run)
    assert stack.endings("rows")[-1] == "ended with exit code 75"


def test_a_lane_worker_frozen_with_batches_on_the_wire_pays_nothing_twice(stack: StackUnderTest) -> None:
    """Its batches have arrived at the provider when it stops. Another lane worker adopts them once the session has
    ended and sends them verbatim: same keys, no charge. The late answers of the first meet finished receipts."""
    stack.latency_ms(500)
    with stack.second("lanes"):
        run = stack.start(80)
        stack.until_sent(run, 3)
        frozen = stack.signal("lanes", signal.SIGSTOP)
        stack.until_session_ended("lanes", frozen)
        stack.until_rows(run, 60)
        stack.signal("lanes", signal.SIGCONT)
        stack.until_restarted("lanes", frozen)
        stack.check(run)
    assert stack.endings("lanes")[-1] == "ended with exit code 75"


def test_postgres_frozen_for_longer_than_a_session(stack: StackUnderTest) -> None:
    """Nobody can renew or write for five seconds, with sessions of three. What the provider answered meanwhile is
    committed when the database is back; whichever sessions ended, nothing is paid twice."""
    stack.latency_ms(200)
    run = stack.start(80)
    stack.until_rows(run, 10)
    pids = stack.postgres_pids()
    stop_all(pids)
    try:
        stack.pause_s(5.0)
    finally:
        continue_all(pids)
    stack.check(run)


def test_a_call_longer_than_a_session_is_made_once(stack: StackUnderTest) -> None:
    """Each call takes four seconds, sessions three, posts are repeated after one and a half: the live claim is seen by
    every sweep and every repeated post, and each item reaches the provider in one request."""
    stack.latency_ms(4_000)
    run = stack.start(4)
    stack.until(lambda: stack.ledger(run).requests_with(f"{run.tag}/first/0000"), "the first row's call")
    stack.latency_ms(30)
    stack.check(run)
    assert stack.ledger(run).requests_with(f"{run.tag}/first/0000") == 1
    assert stack.ledger(run).requests_with(f"{run.tag}/head") == 1
