"""Tables of what people see of runs over time, and of schedules."""

from sqlalchemy import BigInteger, Column, DateTime, Double, Index, Integer, Table, Text, text
from sqlalchemy.dialects.postgresql import JSONB

from runtime.postgres_store.tables import metadata


def _at() -> Column[object]:
    return Column("at", DateTime(timezone=True), primary_key=True, server_default=text("now()"))


run_samples = Table(
    "run_samples",
    metadata,
    Column("run_id", Text, primary_key=True),
    _at(),
    Column("completed", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    Column("cancelled", BigInteger, nullable=False),
    Column("usage", JSONB, nullable=False),
)

lane_samples = Table(
    "lane_samples",
    metadata,
    Column("org_id", Text, primary_key=True),
    Column("lane", Text, primary_key=True),
    Column("provider", Text, primary_key=True),
    _at(),
    Column("requests", BigInteger, nullable=False),
    Column("items", BigInteger, nullable=False),
    Column("capacity", BigInteger, nullable=False),
    Column("in_flight", Integer, nullable=False),
    Column("waiting", Integer, nullable=False),
    Column("rate_per_s", Double),
    Column("reason", Text, nullable=False),
    Column("closed_until", DateTime(timezone=True)),
    Index("lane_samples_at_idx", "at"),
)

play_schedules = Table(
    "play_schedules",
    metadata,
    Column("org_id", Text, primary_key=True),
    Column("play", Text, primary_key=True),
    Column("cron", Text, primary_key=True),
    Column("timezone", Text, primary_key=True),
    Column("last_tick", DateTime(timezone=True), nullable=False, server_default=text("now()")),
)
