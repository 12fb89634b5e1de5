"""Budgets: one row an account, locked by whoever takes of it; and what was taken by which call."""

from sqlalchemy import BigInteger, Column, DateTime, Double, Index, Integer, Table, Text, text

from runtime.postgres_store.tables import metadata


def _used(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default=text("0"))


def _credits(name: str) -> Column[float]:
    return Column(name, Double, nullable=False, server_default=text("0"))


budgets = Table(
    "budgets",
    metadata,
    Column("account", Text, primary_key=True),
    Column("max_credits", Double),
    Column("max_tool_calls", BigInteger),
    Column("max_retries", BigInteger),
    Column("max_child_plays", BigInteger),
    _credits("credits_spent"),
    _credits("credits_held"),
    _used("tool_calls"),
    _used("retries"),
    _used("child_plays"),
    _used("refusals"),
    Column("short_since", DateTime(timezone=True)),
    Column("refused_at", DateTime(timezone=True)),
    Column("short_price", Double),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
    Index("budgets_short_idx", "short_since", postgresql_where=text("short_since is not null")),
    postgresql_with={"fillfactor": "50"},
)

budget_runs = Table(
    "budget_runs",
    metadata,
    Column("account", Text, primary_key=True),
    Column("run_id", Text, primary_key=True),
    Index("budget_runs_run_id_idx", "run_id"),
)

budget_calls = Table(
    "budget_calls",
    metadata,
    Column("account", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("fence", BigInteger, nullable=False),
    Column("held", Double),
    _credits("spent"),
    Column("calls", Integer, nullable=False, server_default=text("0")),
    Index("budget_calls_held_idx", "account", postgresql_where=text("held is not null")),
    postgresql_with={"fillfactor": "50"},
)

budget_children = Table(
    "budget_children",
    metadata,
    Column("account", Text, primary_key=True),
    Column("run_id", Text, primary_key=True),
    Column("namespace", Text, primary_key=True),
)
