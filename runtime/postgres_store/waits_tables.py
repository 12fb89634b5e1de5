"""Tables of durable waits of rows, and of the events that end them."""

from sqlalchemy import BigInteger, Column, DateTime, Identity, Index, Integer, Table, Text, text
from sqlalchemy.dialects.postgresql import JSONB

from runtime.postgres_store.tables import metadata

row_waits = Table(
    "row_waits",
    metadata,
    Column("dataset_id", BigInteger, primary_key=True, autoincrement=False),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", Text, nullable=False),
    Column("due_at", DateTime(timezone=True)),
    Column("detail", Text, nullable=False),
    Column("since", DateTime(timezone=True), nullable=False, server_default=text("now()")),
    Index("row_waits_due_idx", "due_at", postgresql_where=text("due_at is not null")),
)

row_boundaries = Table(
    "row_boundaries",
    metadata,
    Column("dataset_id", BigInteger, primary_key=True, autoincrement=False),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("key", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("due_at", DateTime(timezone=True)),
    Column("outcome", JSONB),
    Column("org_id", Text, nullable=False),
    Column("event_key", Text),
    Column("event_id", Text),
    Column("timeout_outcome", JSONB),
    Column("prepared", JSONB),
    Column("holder", Integer, nullable=False, server_default=text("0")),
    Column("armed_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
    Index(
        "row_boundaries_event_idx",
        "org_id",
        "event_key",
        postgresql_where=text("state = 'armed' and event_key is not null"),
    ),
)

delivered_events = Table(
    "delivered_events",
    metadata,
    Column("org_id", Text, primary_key=True),
    Column("event_id", Text, primary_key=True),
    Column("event_key", Text, nullable=False),
    Column("payload", JSONB, nullable=False),
    Column("number", BigInteger, Identity(always=True), nullable=False),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=text("now()")),
    Column("delivered_at", DateTime(timezone=True)),
    Index("delivered_events_key_idx", "org_id", "event_key", "number"),
    Index("delivered_events_age_idx", "created_at"),
    Index("delivered_events_open_idx", "created_at", postgresql_where=text("delivered_at is null")),
)
