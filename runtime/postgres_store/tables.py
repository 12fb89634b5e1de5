"""The schema as SQLAlchemy Core tables; `migrations/` builds it and a test proves the two equal.

Work lists (`runs`, `datasets`, `pages`, `slices`, `run_rows`) say what is to be done and by whom; values live in
`sheet_rows` and `receipts`; counters are one row per session and are summed when read, so nobody waits for them.
"""

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
    }
)

SHEET_PARTITIONS = 16

_LIVE_RUN = text("state in ('queued', 'running', 'waiting')")
_ROOT_RUN = text("((options -> 'lineage'::text) ->> 'root'::text)")
_CHILD_RUN = text("options ? 'lineage'")
_AWAITS_EVENT = text("state = 'armed' and event_key is not null")
_OPEN_DATASET = text("state in ('seeding', 'running', 'failing')")


def _id(name: str) -> Column[str]:
    return Column(name, Text, primary_key=True)


def _number(name: str) -> Column[int]:
    return Column(name, Integer, nullable=False, server_default=text("0"))


def _big(name: str) -> Column[int]:
    return Column(name, BigInteger, nullable=False, server_default=text("0"))


def _at(name: str) -> Column[object]:
    return Column(name, DateTime(timezone=True))


def _made(name: str = "created_at") -> Column[object]:
    return Column(name, DateTime(timezone=True), nullable=False, server_default=text("now()"))


sessions = Table(
    "sessions",
    metadata,
    _id("session_id"),
    Column("role", Text, nullable=False),
    Column("hostname", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("ttl_s", Double, nullable=False),
    _made("started_at"),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    _at("ended_at"),
    Column("redis_epoch", Text),
    Column("closed", Boolean, nullable=False, server_default=text("false")),
    Index("sessions_live_idx", "session_id", postgresql_where=text("ended_at is null")),
    Index("sessions_ended_idx", "ended_at", postgresql_where=text("ended_at is not null")),
)

runs = Table(
    "runs",
    metadata,
    _id("run_id"),
    Column("org_id", Text, nullable=False),
    Column("play", Text, nullable=False),
    Column("input", JSONB, nullable=False),
    Column("options", JSONB, nullable=False),
    Column("state", Text, nullable=False),
    _number("attempt"),
    Column("session_id", Text),
    Column("claim", Text),
    _number("wakes"),
    _number("wakes_seen"),
    Column("result", JSONB),
    Column("error", JSONB),
    Column("number", BigInteger, Identity(always=True), nullable=False),
    _made(),
    _at("started_at"),
    _at("ended_at"),
    _at("hinted_at"),
    _number("crashes"),
    _big("crash_progress"),
    Column("source_hash", Text),
    Column("active_s", Double, nullable=False, server_default=text("0")),
    _at("active_at"),
    _at("unavailable_since"),
    _at("unavailable_at"),
    _big("unavailable_progress"),
    Index("runs_live_idx", "number", postgresql_where=_LIVE_RUN),
    Index("runs_root_idx", _ROOT_RUN, postgresql_where=_CHILD_RUN),
)

run_journal = Table(
    "run_journal",
    metadata,
    _id("run_id"),
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("op_key", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("outcome", JSONB, nullable=False),
    Column("attempt", Integer, nullable=False),
    UniqueConstraint("run_id", "op_key"),
)

boundaries = Table(
    "boundaries",
    metadata,
    _id("run_id"),
    _id("op_key"),
    Column("kind", Text, nullable=False),
    Column("state", Text, nullable=False),
    _at("due_at"),
    Column("outcome", JSONB),
    Column("org_id", Text),
    Column("event_key", Text),
    Column("event_id", Text),
    Column("timeout_outcome", JSONB),
    Column("prepared", JSONB),
    _number("holder"),
    _made("armed_at"),
    Index("boundaries_due_idx", "due_at", postgresql_where=text("state = 'armed' and due_at is not null")),
    Index("boundaries_event_idx", "org_id", "event_key", postgresql_where=_AWAITS_EVENT),
)

datasets = Table(
    "datasets",
    metadata,
    Column("dataset_id", BigInteger, Identity(always=True), primary_key=True),
    Column("run_id", Text, nullable=False),
    Column("key", Text, nullable=False),
    Column("namespace", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("columns", ARRAY(Text), nullable=False),
    Column("source_hash", Text, nullable=False),
    Column("on_row_error", Text, nullable=False),
    Column("op_key", Text, nullable=False),
    _number("pages_seeded"),
    Column("pages_total", Integer),
    _big("rows_seeded"),
    _big("duplicates"),
    _big("next_position"),
    Column("input_digest", Text, nullable=False, server_default=text("''")),
    _number("next_page"),
    _number("claimed_from"),
    _number("pages_settled"),
    _number("pages_parked"),
    Column("winding", Boolean, nullable=False, server_default=text("false")),
    _made(),
    _at("ended_at"),
    Column("mode", Text, nullable=False, server_default=text("'default'")),
    _big("kept"),
    _big("left_out"),
    Column("input_columns", ARRAY(Text), nullable=False, server_default=text("'{}'")),
    UniqueConstraint("run_id", "key"),
    Index("datasets_winding_idx", "dataset_id", postgresql_where=text("winding")),
    Index("datasets_open_idx", "dataset_id", postgresql_where=_OPEN_DATASET),
    postgresql_with={"fillfactor": "50"},
)

dataset_counts = Table(
    "dataset_counts",
    metadata,
    Column("dataset_id", BigInteger, primary_key=True, autoincrement=False),
    _id("session_id"),
    _big("completed"),
    _big("failed"),
    _big("cancelled"),
    _big("superseded"),
    _big("children_ok"),
    _big("children_failed"),
    postgresql_with={"fillfactor": "50"},
)

run_usage = Table(
    "run_usage",
    metadata,
    _id("run_id"),
    _id("tool"),
    _id("session_id"),
    _big("items"),
    _big("batches"),
    _big("capacity"),
    _big("cached"),
    _big("followed"),
    Column("credits", Double, nullable=False, server_default=text("0")),
    Column("write_id", Text),
    postgresql_with={"fillfactor": "50"},
)

pages = Table(
    "pages",
    metadata,
    Column("dataset_id", BigInteger, primary_key=True, autoincrement=False),
    Column("page", Integer, primary_key=True, autoincrement=False),
    Column("state", Text, nullable=False),
    Column("first_position", BigInteger, nullable=False),
    Column("end_position", BigInteger, nullable=False),
    Index("pages_seeded_idx", "dataset_id", "page", postgresql_where=text("state = 'seeded'")),
    Index("pages_out_idx", "dataset_id", "page", postgresql_where=text("state in ('out', 'parked')")),
    postgresql_with={"fillfactor": "50"},
)

slices = Table(
    "slices",
    metadata,
    Column("dataset_id", BigInteger, primary_key=True, autoincrement=False),
    Column("page", Integer, primary_key=True, autoincrement=False),
    Column("slice", Integer, primary_key=True, autoincrement=False),
    Column("first_position", BigInteger, nullable=False),
    Column("end_position", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("session_id", Text),
    Column("claim", Text),
    _number("fence"),
    _at("taken_at"),
    _at("sent_at"),
    _number("sends"),
    Column("epoch", Text),
    postgresql_with={"fillfactor": "50"},
)

run_rows = Table(
    "run_rows",
    metadata,
    Column("dataset_id", BigInteger, primary_key=True, autoincrement=False),
    Column("position", BigInteger, primary_key=True, autoincrement=False),
    Column("page", Integer, nullable=False),
    Column("row_key", Text, nullable=False),
    Column("input", JSONB, nullable=False),
    Column("state", Text, nullable=False),
    _number("fence"),
    Column("superseded", Boolean, nullable=False, server_default=text("false")),
    Column("error", JSONB),
    _number("crash_count"),
    UniqueConstraint("dataset_id", "row_key"),
    postgresql_with={"fillfactor": "50"},
)

sheet_rows = Table(
    "sheet_rows",
    metadata,
    _id("org_id"),
    _id("play"),
    _id("namespace"),
    _id("row_key"),
    Column("data", JSONB, nullable=False),
    Column("cell_meta", JSONB, nullable=False),
    Column("write_version", BigInteger, nullable=False),
    Column("run_id", Text, nullable=False),
    _made("updated_at"),
    Column("state", Text, nullable=False, server_default=text("'completed'")),
    postgresql_partition_by="HASH (org_id, play, namespace)",
)

receipts = Table(
    "receipts",
    metadata,
    _id("key"),
    Column("org_id", Text, nullable=False),
    Column("tool", Text, nullable=False),
    Column("run_id", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("output", LargeBinary),
    Column("error", JSONB),
    Column("terminal", Boolean, nullable=False),
    Column("session_id", Text, nullable=False),
    _made(),
    _made("updated_at"),
)

run_logs = Table(
    "run_logs",
    metadata,
    _id("run_id"),
    _id("scope"),
    Column("n", Integer, primary_key=True, autoincrement=False),
    Column("level", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("fields", JSONB, nullable=False),
    _made("at"),
)
