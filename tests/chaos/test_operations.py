"""What operators and networks do to a running stack: cut connections, deploys, a wrong Redis."""

import signal
from dataclasses import replace

import pytest

from runtime.errors import ChildNotReadyError
from tests.chaos.probe_watch import ProbeWatch
from tests.chaos.processes import ROLES
from tests.chaos.stack_under_test import StackUnderTest

CUTS = 3
BETWEEN_CUTS_S = 0.6
RESUMED_S = 30.0
ROLLED_ROWS = 800
ENDED_S = 12.0  # the grace of these workers, and a little


def cut_all_connections(stack: StackUnderTest) -> None:
    """Every client of Redis, subscribers too, is disconnected."""
    with stack.redis(0) as admin:
        for kind in ("normal", "pubsub"):
            admin.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")


def test_redis_drops_every_connection_three_times_in_two_seconds(stack: StackUnderTest) -> None:
    """Brokers, leases, inboxes and events lose their connections again and again under load. Each worker says that it
    isn't ready, and is again within 30 s: by itself, or as a new process after an end that says so."""
    stack.latency_ms(150)
    with ProbeWatch(stack.probes).watching() as probes:
        stack.until(lambda: probes.green_now == set(ROLES), "all probes green")
        for seen in probes.red.values():
            seen.clear()
        endings = {role: len(stack.endings(role)) for role in ROLES}
        run = stack.start(150)
        stack.until_rows(run, 10)
        for _ in range(CUTS):
            cut_all_connections(stack)
            stack.pause_s(BETWEEN_CUTS_S)
        ended = stack.rows_ended(run)
        stack.until(lambda: probes.green_now == set(ROLES), "all probes green again", RESUMED_S)
        stack.until(lambda: stack.rows_ended(run) > ended, "rows that end", RESUMED_S)
        stack.check(run)
        assert all(probes.red.values()), probes.red
    for role in ROLES:
        assert all(end.startswith("ended with exit code") for end in stack.endings(role)[endings[role] :])


def test_a_rolling_restart_of_every_pool_under_load_loses_nothing(stack: StackUnderTest) -> None:
    """Each role in turn is told to stop and comes back while one run goes on: queued work goes back, what is on the
    wire is finished, each process ends by itself within its grace and its session with it, so that no claim waits for
    its time to be up; nothing is charged or written twice, no message is left."""
    stack.latency_ms(100)
    endings = {role: len(stack.endings(role)) for role in ROLES}
    run = stack.start(ROLLED_ROWS)
    rows = 20
    for role in ROLES:
        stack.until_rows(run, rows)
        old = stack.signal(role, signal.SIGTERM)
        stack.until(
            lambda role=role, old=old: stack.pid(role) != old or not stack.child(role).alive(),
            f"the end of {role}",
            ENDED_S,
        )
        assert stack.sql(
            "select ended_at is not null from sessions where pid = %s order by started_at desc limit 1", old
        ) == [(True,)]
        stack.until_restarted(role, old)
        rows = min(stack.rows_ended(run) + 20, ROLLED_ROWS)
    stack.check(run, timeout_s=120)
    for role in ROLES:
        assert stack.endings(role)[endings[role] :] == ["ended with exit code 0"]
    assert not any(stack._queues().values())
    crashed = stack.sql("select count(*) from sessions where ended_at is null and expires_at < now()")
    assert crashed == [(0,)]


def test_a_redis_that_evicts_is_refused_at_start_up(stack: StackUnderTest) -> None:
    """Leases that may vanish would be paid twice: no worker begins, and the reason and what to do are its last line."""
    with stack.redis(0) as admin:
        admin.config_set("maxmemory-policy", "allkeys-lru")
        try:
            launch = replace(stack.child("rows").launch, name="rows-evicting", log=None, restart=False)
            with pytest.raises(ChildNotReadyError, match=r"exit code 3(.|\n)*allkeys-lru(.|\n)*noeviction"):
                stack.supervisor.launch(launch)
        finally:
            admin.config_set("maxmemory-policy", "noeviction")
            for child in list(stack.supervisor._children):
                if child.name == "rows-evicting":
                    stack.supervisor.drop(child)
