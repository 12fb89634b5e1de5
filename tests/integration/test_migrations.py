"""The migrations build exactly the tables that the code describes, and stand in nobody's way."""

import re
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from runtime.errors import ServiceUnreachableError
from runtime.policy.limits import Limits
from runtime.postgres_store.migrate import MIGRATIONS, engine_for, upgrade
from runtime.postgres_store.schema import metadata
from tests.conftest import Template, _in_path
from tests.waiting import wait_until

HASTY = Limits(migrate_lock_s=0.2, migrate_pause_s=0.05)
LATER = sorted(path for path in (MIGRATIONS / "versions").glob("0*.py") if path.name[:4] != "0001")


def _ours(_object: object, name: str | None, kind: str, *_: object) -> bool:
    return kind != "table" or not (name or "").startswith("sheet_rows_")


def _differences(database_url: str) -> list[object]:
    options = {"include_object": _ours, "compare_type": True, "compare_server_default": True}
    with engine_for(database_url).connect() as connection:
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), metadata))


@pytest.fixture
def empty_database(database_template: Template) -> Iterator[str]:
    name = f"test_empty_{secrets.token_hex(4)}"
    database_template.run(f"create database {name}")
    try:
        yield _in_path(database_template.admin_url, name)
    finally:
        database_template.run(f"drop database {name} with (force)")


def test_tables_are_what_the_migrations_make(database_url: str) -> None:
    assert _differences(database_url) == []


def test_upgrading_again_changes_nothing(database_url: str) -> None:
    upgrade(database_url)
    upgrade(database_url)


def test_a_sheet_is_one_partition_of_sixteen(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        row = connection.execute(
            "select count(*) from pg_inherits where inhparent = 'sheet_rows'::regclass"
        ).fetchone()
    assert row == (16,)


def test_migrators_that_start_at_once_take_turns(empty_database: str) -> None:
    with ThreadPoolExecutor(3) as threads:
        for done in [threads.submit(upgrade, empty_database, limits=HASTY) for _ in range(3)]:
            done.result(timeout=30)
    assert _differences(empty_database) == []


def _waits_for_a_lock(watcher: psycopg.Connection) -> Callable[[], bool]:
    query = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    return lambda: watcher.execute(query).fetchone() != (0,)


def test_a_migration_that_waits_for_old_workers_holds_nobody_up(empty_database: str) -> None:
    """A transaction of an old worker is open on a table that changes: statements of others still come through."""
    upgrade(empty_database, to="0001", limits=HASTY)
    with (
        psycopg.connect(empty_database) as old,
        psycopg.connect(empty_database, autocommit=True) as other,
        ThreadPoolExecutor(1) as threads,
    ):
        old.execute("lock table runs in row exclusive mode")
        migrating = threads.submit(upgrade, empty_database, limits=HASTY)
        other.execute("set lock_timeout = '10s'")
        wait_until(_waits_for_a_lock(other), 10, "the migration waiting for the old transaction")
        for _ in range(3):
            assert other.execute("select count(*) from runs").fetchone() == (0,)
        assert not migrating.done()
        old.commit()
        migrating.result(timeout=30)
    assert _differences(empty_database) == []


def test_an_index_of_an_old_table_is_built_beside_its_writers(empty_database: str) -> None:
    """It waits for a transaction that is older, longer than for a lock, and others write meanwhile."""
    upgrade(empty_database, to="0007", limits=HASTY)
    insert = (
        "insert into runs (run_id, org_id, play, input, options, state)"
        " values (%s, 'o', 'p', '{}', '{}', 'queued')"
    )
    with (
        psycopg.connect(empty_database) as old,
        psycopg.connect(empty_database, autocommit=True) as other,
        ThreadPoolExecutor(1) as threads,
    ):
        old.execute(insert, ["a"])
        migrating = threads.submit(upgrade, empty_database, limits=HASTY)
        other.execute("set lock_timeout = '10s'")
        wait_until(_waits_for_a_lock(other), 10, "the index waiting for the old transaction")
        for n in range(3):
            other.execute(insert, [f"b{n}"])
        assert not migrating.done()
        old.commit()
        migrating.result(timeout=30)
    assert _differences(empty_database) == []


def test_an_index_that_was_interrupted_is_built_anew(empty_database: str) -> None:
    upgrade(empty_database, to="0007", limits=HASTY)
    with psycopg.connect(empty_database, autocommit=True) as broken:
        broken.execute("create index runs_root_idx on runs (run_id)")
        broken.execute("update pg_index set indisvalid = false where indexrelid = 'runs_root_idx'::regclass")
        upgrade(empty_database, limits=HASTY)
        found = broken.execute(
            "select indisvalid from pg_index where indexrelid = 'runs_root_idx'::regclass"
        ).fetchone()
        assert found == (True,)
    assert _differences(empty_database) == []


def test_a_migration_gives_up_in_the_end_and_says_so(empty_database: str) -> None:
    upgrade(empty_database, to="0001", limits=HASTY)
    with psycopg.connect(empty_database) as old:
        old.execute("lock table runs in row exclusive mode")
        hopeless = Limits(migrate_lock_s=0.05, migrate_pause_s=0.01, migrate_attempts=2)
        with pytest.raises(ServiceUnreachableError, match="lock timeout"):
            upgrade(empty_database, limits=hopeless)
    upgrade(empty_database, limits=HASTY)


@pytest.mark.parametrize("path", LATER, ids=lambda path: path.stem)
def test_a_migration_only_adds(path: Path) -> None:
    """Workers of the version before it go on while it runs and after it ran."""
    forward = path.read_text().partition("def downgrade")[0].lower()
    assert not re.search(
        r"\b(drop (table|column|constraint)|rename|set not null|alter column \w+ type)\b", forward
    )
    for column in re.findall(r"\badd column ([^,;]+)", forward):
        assert "not null" not in column or "default" in column, column
