"""What doctor and metrics read of a real database."""

import psycopg

from runtime.policy.limits import Limits
from runtime.postgres_store.health import database_facts, live_runs, live_workers

LIMITS = Limits(doctor_again_s=0.01)
RUN = (
    "insert into runs (run_id, org_id, play, input, options, state, session_id, wakes, wakes_seen, created_at,"
    " started_at)"
    " values (%s, 'o', 'p', '{}', '{}', %s, %s, %s, 0, now() - interval '1 hour', now() - interval '1 hour')"
)
SESSION = (
    "insert into sessions (session_id, role, hostname, pid, ttl_s, expires_at, ended_at)"
    " values (%s, 'plays', 'h', 1, 30, now() + interval '20 seconds', now() - %s::float8 * interval '1 second')"
)


def test_only_runs_that_nobody_takes_stand_still(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as connection:
        for session_id, ended_s in (("alive", None), ("just-died", 1.0), ("long-gone", 900.0)):
            connection.execute(SESSION.encode(), (session_id, ended_s))
        for run_id, state, session_id, wakes in (
            ("held", "running", "alive", 0),
            ("sweeps-come", "running", "just-died", 0),
            ("left", "running", "long-gone", 0),
            ("woken", "waiting", None, 1),
            ("waits", "waiting", None, 0),
            ("unheard", "queued", None, 0),
            ("done", "completed", None, 0),
        ):
            connection.execute(RUN.encode(), (run_id, state, session_id, wakes))
    facts = database_facts(database_url, LIMITS)
    assert set(facts.stuck_runs) == {"left", "woken", "unheard"}
    assert facts.migration == facts.newest_migration != ""
    assert live_runs(database_url, LIMITS) == {"running": 3, "waiting": 2, "queued": 1}
    (worker,) = live_workers(database_url, LIMITS)
    assert (worker.session_id, worker.role, worker.runs) == ("alive", "plays", 1)
    assert 9 < worker.renewed_s < 20
