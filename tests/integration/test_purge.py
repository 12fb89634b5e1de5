"""Retention on a real database: old runs go whole, live runs and sheets stay."""

from datetime import UTC, datetime

import psycopg
import pytest

from runtime.policy.limits import Limits
from runtime.postgres_store.named import load
from runtime.postgres_store.purge import ACCOUNTS, KEPT, Purge, of_datasets, of_runs
from runtime.postgres_store.schema import metadata

DAY_S = 86_400.0
SMALL_STEPS = Limits(purge_runs=1, purge_rows=2)


def test_no_table_is_forgotten() -> None:
    named = {*of_datasets(), *of_runs(), *ACCOUNTS, *KEPT, "runs", "datasets"}
    assert named == set(metadata.tables)


@pytest.fixture
def filled(database_url: str) -> str:
    with psycopg.connect(database_url, autocommit=True) as connection:
        for run_id, state, ended in (
            ("old-1", "completed", "now() - interval '40 days'"),
            ("old-2", "failed", "now() - interval '31 days'"),
            ("new", "completed", "now() - interval '1 day'"),
            ("live", "running", "null"),
        ):
            _run(connection, run_id, state, ended)
    return database_url


def _run(connection: psycopg.Connection, run_id: str, state: str, ended: str) -> None:
    connection.execute(
        "insert into runs (run_id, org_id, play, input, options, state, created_at, ended_at)"
        f" values (%s, 'o', 'p', '{{}}', '{{}}', %s, now() - interval '90 days', {ended})".encode(),
        (run_id, state),
    )
    found = connection.execute(
        "insert into datasets (run_id, key, namespace, state, columns, source_hash, on_row_error, op_key, rows_seeded)"
        " values (%s, 'k', 'k', 'settled', '{}', '', 'isolate', 'dataset:k', 5) returning dataset_id",
        (run_id,),
    ).fetchone()
    assert found is not None
    for position in range(5):
        connection.execute(
            "insert into run_rows (dataset_id, position, page, row_key, input, state)"
            " values (%s, %s, 0, %s, '{}', 'completed')",
            (found[0], position, str(position)),
        )
        connection.execute(
            "insert into run_journal (run_id, seq, op_key, kind, digest, outcome, attempt)"
            " values (%s, %s, %s, 'tool', '', '{}', 1)",
            (run_id, position, str(position)),
        )
    connection.execute(
        "insert into sheet_rows (org_id, play, namespace, row_key, data, cell_meta, write_version, run_id)"
        " values ('o', 'p', 'k', %s, '{}', '{}', 1, %s)",
        (run_id, run_id),
    )


def _count(database_url: str, table: str) -> int:
    with psycopg.connect(database_url) as connection:
        found = connection.execute(f"select count(*) from {table}".encode()).fetchone()
    assert found is not None
    return found[0]


def test_old_runs_go_with_all_that_is_theirs(filled: str) -> None:
    work = Purge(filled, SMALL_STEPS)
    assert (work.count(30 * DAY_S).runs, work.count(30 * DAY_S).rows) == (2, 10)
    steps = list(work.runs(30 * DAY_S))
    assert [(step.runs, step.rows) for step in steps] == [(1, 5), (1, 5)]
    left = {table: _count(filled, table) for table in ("runs", "datasets", "run_rows", "run_journal")}
    assert left == {"runs": 2, "datasets": 2, "run_rows": 10, "run_journal": 10}
    assert _count(filled, "sheet_rows") == 4
    assert list(work.runs(30 * DAY_S)) == []


def test_a_run_that_goes_on_is_never_old(filled: str) -> None:
    list(Purge(filled, Limits()).runs(1.0))
    assert _count(filled, "runs") == 1
    assert _count(filled, "run_rows") == 5


def test_receipts_go_only_by_their_own_age(filled: str) -> None:
    with psycopg.connect(filled, autocommit=True) as connection:
        for key, age in (("a", 400), ("b", 10)):
            connection.execute(
                "insert into receipts (key, org_id, tool, run_id, state, fence, terminal, session_id, updated_at)"
                " values (%s, 'o', 't', 'old-1', 'completed', 1, true, 's', now() - %s * interval '1 day')",
                (key, age),
            )
    list(Purge(filled, Limits()).runs(30 * DAY_S))
    assert _count(filled, "receipts") == 2
    assert Purge(filled, Limits()).count_receipts(180 * DAY_S) == 1
    assert [step.receipts for step in Purge(filled, Limits()).receipts(180 * DAY_S)] == [1]
    assert _count(filled, "receipts") == 1


def test_each_block_of_receipts_is_read_once(filled: str) -> None:
    """Old and young in all blocks, many steps: a step reads its own blocks, and what is old goes in one walk."""
    limits = Limits(purge_blocks=4)
    with psycopg.connect(filled, autocommit=True) as connection:
        connection.execute(
            "insert into receipts (key, org_id, tool, run_id, state, fence, terminal, session_id, updated_at)"
            " select 'k' || n, 'o', repeat('t', 300), 'r', 'completed', 1, true, 's',"
            " now() - (n %% 2) * interval '400 days' from generate_series(1, %s) n",
            (2_000,),
        )
        found = connection.execute("select pg_relation_size('receipts') / 8192").fetchone()
        assert found is not None
        blocks = found[0]
        values = {"first": 8, "end": 12, "before": datetime.now(UTC)}
        with connection.transaction(force_rollback=True):
            explain = b"explain (analyze, buffers, timing off, format json) "
            ((plan,),) = connection.execute(explain + load("purge")["receipts"], values).fetchall()
    (scan,) = plan[0]["Plan"]["Plans"]
    assert (scan["Node Type"], scan["Shared Hit Blocks"] + scan["Shared Read Blocks"]) == (
        "Tid Range Scan",
        4,
    )
    steps = [step.receipts for step in Purge(filled, limits).receipts(180 * DAY_S)]
    assert (len(steps), sum(steps)) == (-(-blocks // 4), 1_000)
    assert max(steps) < 4 * 8192 / 300
    assert _count(filled, "receipts") == 1_000
