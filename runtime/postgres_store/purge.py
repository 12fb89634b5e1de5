"""Retention: what ended runs leave behind is deleted in small steps; sheets and receipts stay unless asked for.

Which tables belong to a run is read from the schema, so a new table can't be forgotten: a test asks that each is
either a run's, a dataset's, or named as kept.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from runtime.model.purged import Purged
from runtime.policy.limits import Limits
from runtime.postgres_store.named import load
from runtime.postgres_store.pool import database_errors
from runtime.postgres_store.schema import metadata

KEPT = frozenset(
    {
        "sheet_rows",
        "sheet_columns",
        "receipts",
        "sessions",
        "delivered_events",
        "lane_samples",
        "play_schedules",
    }
)
"""Shared by runs, or looked after elsewhere."""

ACCOUNTS = ("budget_calls", "budgets")
"""Tables of a lineage's account: they go when no run of it is left."""

_SQL = load("purge")


class Purge:
    """One examination or one clean-up, on one connection. Raises ServiceUnreachableError."""

    def __init__(self, database_url: str, limits: Limits) -> None:
        self._url = database_url
        self._limits = limits

    def count(self, older_s: float) -> Purged:
        """How much `runs` would delete."""
        with self._connected() as connection:
            found = connection.execute(_SQL["count"], {"older_s": older_s}).fetchone()
        assert found is not None
        return Purged(runs=found[0], rows=found[1])

    def runs(self, older_s: float) -> Iterator[Purged]:
        """Delete runs that ended longer ago than `older_s`, a few at a time; yields what each step deleted."""
        with self._connected() as connection:
            while True:
                found = connection.execute(
                    _SQL["ended"], {"older_s": older_s, "limit": self._limits.purge_runs}
                ).fetchall()
                if not found:
                    return
                run_ids = [run_id for (run_id,) in found]
                yield Purged(runs=len(run_ids), rows=self._forget(connection, run_ids))

    def receipts(self, older_s: float) -> Iterator[Purged]:
        """Delete receipts that nobody has stored anew for `older_s`: their calls are paid again when asked again.

        One walk over the table, some blocks a step; what is stored meanwhile is young.
        """
        with self._connected() as connection:
            found = connection.execute(_SQL["receipt_blocks"], {"older_s": older_s}).fetchone()
            assert found is not None
            blocks, before = found
            for first in range(0, blocks, self._limits.purge_blocks):
                values = {"first": first, "end": first + self._limits.purge_blocks, "before": before}
                yield Purged(receipts=connection.execute(_SQL["receipts"], values).rowcount)

    def count_receipts(self, older_s: float) -> int:
        """How many `receipts` would delete."""
        with self._connected() as connection:
            found = connection.execute(_SQL["count_receipts"], {"older_s": older_s}).fetchone()
        assert found is not None
        return found[0]

    def _forget(self, connection: psycopg.Connection, run_ids: list[str]) -> int:
        """The runs' rows first and the runs last: a purge that is killed goes on where it stood."""
        found = connection.execute(_SQL["datasets"], {"run_ids": run_ids}).fetchall()
        dataset_ids = [dataset_id for (dataset_id,) in found]
        accounts = self._closed_accounts(connection, run_ids)
        rows = 0
        for table in of_datasets():
            deleted = self._delete(connection, table, "dataset_id", dataset_ids)
            rows += deleted if table == "run_rows" else 0
        for table in of_runs():
            self._delete(connection, table, "run_id", run_ids)
        for table in ACCOUNTS:
            self._delete(connection, table, "account", accounts)
        self._delete(connection, "datasets", "run_id", run_ids)
        self._delete(connection, "runs", "run_id", run_ids)
        return rows

    def _closed_accounts(self, connection: psycopg.Connection, run_ids: list[str]) -> list[str]:
        found = connection.execute(_SQL["closed_accounts"], {"run_ids": run_ids}).fetchall()
        return [account for (account,) in found]

    def _delete(self, connection: psycopg.Connection, table: str, column: str, values: list) -> int:
        statement = sql.SQL(
            "delete from {table} where ctid = any(array(select ctid from {table} where {column} = any(%s) limit %s))"
        ).format(table=sql.Identifier(table), column=sql.Identifier(column))
        total, most = 0, self._limits.purge_rows
        while values:
            deleted = connection.execute(statement, (values, most)).rowcount
            total += deleted
            if deleted < most:
                break
        return total

    @contextmanager
    def _connected(self) -> Iterator[psycopg.Connection]:
        timeout_s = int(self._limits.client_connect_s)
        with (
            database_errors("the purge"),
            psycopg.connect(self._url, connect_timeout=timeout_s, autocommit=True) as connection,
        ):
            yield connection


def of_datasets() -> list[str]:
    """Tables that belong to a dataset."""
    return [name for name, table in metadata.tables.items() if "dataset_id" in table.c and name != "datasets"]


def of_runs() -> list[str]:
    """Tables that belong to a run, but for the run and its datasets themselves."""
    return [
        name
        for name, table in metadata.tables.items()
        if "run_id" in table.c and "dataset_id" not in table.c and name not in KEPT and name != "runs"
    ]
