"""What `doctor` and `workers` read of Postgres; plain blocking reads, for the command line."""

import time

import psycopg

from runtime.model.health import DatabaseFacts, LiveWorker
from runtime.policy.limits import Limits
from runtime.postgres_store.named import load
from runtime.postgres_store.pool import database_errors

_SQL = load("health")


def database_facts(database_url: str, limits: Limits) -> DatabaseFacts:
    """Raises ServiceUnreachableError."""
    with database_errors("the examination"), _connect(database_url, limits) as connection:
        row = connection.execute(_SQL["facts"]).fetchone()
        assert row is not None
        version, now_s, used, most, migrated = row
        found = connection.execute(_SQL["migration"]).fetchone() if migrated else None
        stuck = _stuck_runs(connection, limits) if migrated else ()
    return DatabaseFacts(
        version=version,
        now_s=now_s,
        connections=used,
        max_connections=most,
        migration=found[0] if found else None,
        newest_migration=newest_migration(),
        stuck_runs=stuck,
    )


def _stuck_runs(connection: psycopg.Connection, limits: Limits) -> tuple[str, ...]:
    """Seen in two looks: a run that was just woken is taken between them."""
    values = {"stuck_s": limits.doctor_stuck_s, "limit": limits.doctor_runs}
    first = connection.execute(_SQL["stuck"], values).fetchall()
    if not first:
        return ()
    time.sleep(limits.doctor_again_s)
    again = connection.execute(_SQL["stuck"], values).fetchall()
    return tuple(run_id for (run_id,) in first if (run_id,) in again)


def live_workers(database_url: str, limits: Limits) -> list[LiveWorker]:
    """By role, the oldest first. Raises ServiceUnreachableError."""
    with database_errors("the list of workers"), _connect(database_url, limits) as connection:
        rows = connection.execute(_SQL["workers"]).fetchall()
    return [
        LiveWorker(
            session_id=session_id,
            role=role,
            hostname=hostname,
            pid=pid,
            started_at=started_at,
            renewed_s=renewed_s,
            runs=runs,
            slices=slices,
        )
        for session_id, role, hostname, pid, started_at, renewed_s, runs, slices in rows
    ]


def newest_migration() -> str:
    """The revision that this code wants."""
    # Asked by one command: the others start without what migrations need.
    from runtime.postgres_store.migrate import newest

    return newest()


def _connect(database_url: str, limits: Limits) -> psycopg.Connection:
    return psycopg.connect(database_url, connect_timeout=int(limits.client_connect_s), autocommit=True)


def live_runs(database_url: str, limits: Limits) -> dict[str, int]:
    """How many runs have not ended, by state. Raises ServiceUnreachableError."""
    with database_errors("the count of runs"), _connect(database_url, limits) as connection:
        found = connection.execute(_SQL["live_runs"]).fetchall()
    return dict(found)
