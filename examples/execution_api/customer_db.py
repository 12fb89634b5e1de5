"""A customer's own database: a small table in memory, read by one statement with bound values."""

import sqlite3
from contextlib import closing
from typing import Any

from examples.execution_api.item_error import ItemError

MOST_ROWS = 10_000
_STEPS = 20_000  # of SQLite's machine, in thousands: a query that never ends is stopped
_COMPANIES = (
    ("Acme", "acme.example", "DE", 120),
    ("Borealis", "borealis.example", "NO", 45),
    ("Cumulus", "cumulus.example", "FR", 8),
    ("Dynamo", "dynamo.example", "US", 2_300),
)


def query(input: dict[str, Any]) -> dict[str, Any]:
    """`{"rows": [...], "truncated": bool}`; only reads."""
    sql, params, most = input.get("sql"), input.get("params", []), input.get("max_rows", MOST_ROWS)
    if not isinstance(sql, str) or not sql.strip():
        raise ItemError("bad_sql", "sql must be the text of one statement")
    if not isinstance(params, (list, dict)):
        raise ItemError("bad_params", "params must be a list or an object of values")
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= MOST_ROWS:
        raise ItemError("bad_max_rows", f"max_rows must be a whole number from 1 to {MOST_ROWS}")
    with closing(_database()) as database:
        try:
            cursor = database.execute(sql, params)
            names = [column[0] for column in cursor.description or ()]
            rows = cursor.fetchmany(most + 1)
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise ItemError("bad_sql", f"the database refused the statement: {error}") from None
    return {
        "rows": [dict(zip(names, row, strict=True)) for row in rows[:most]],
        "truncated": len(rows) > most,
    }


def _database() -> sqlite3.Connection:
    database = sqlite3.connect(":memory:")
    database.execute(
        "create table companies (name text primary key, domain text, country text, staff integer)"
    )
    database.executemany("insert into companies values (?, ?, ?, ?)", _COMPANIES)
    database.execute("pragma query_only = on")
    steps = iter(range(_STEPS))
    database.set_progress_handler(lambda: next(steps, None) is None, 1_000)
    return database
