"""The migrations build exactly the tables that the code describes."""

import psycopg
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from runtime.postgres_store.migrate import engine_for, upgrade
from runtime.postgres_store.tables import metadata


def _ours(_object: object, name: str | None, kind: str, *_: object) -> bool:
    return kind != "table" or not (name or "").startswith("sheet_rows_")


def test_tables_are_what_the_migrations_make(database_url: str) -> None:
    options = {"include_object": _ours, "compare_type": True, "compare_server_default": True}
    with engine_for(database_url).connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection, opts=options), metadata) == []


def test_upgrading_again_changes_nothing(database_url: str) -> None:
    upgrade(database_url)
    upgrade(database_url)


def test_a_sheet_is_one_partition_of_sixteen(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        row = connection.execute(
            "select count(*) from pg_inherits where inhparent = 'sheet_rows'::regclass"
        ).fetchone()
    assert row == (16,)
