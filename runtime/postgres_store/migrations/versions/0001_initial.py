"""The first schema."""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

SHEET_PARTITIONS = 16

TABLES = """
create table sessions (
    session_id text not null,
    role text not null,
    hostname text not null,
    pid integer not null,
    ttl_s double precision not null,
    started_at timestamptz not null default now(),
    expires_at timestamptz not null,
    ended_at timestamptz,
    redis_epoch text,
    primary key (session_id)
);

create index sessions_ended_idx on sessions (ended_at) where ended_at is not null;

create index sessions_live_idx on sessions (session_id) where ended_at is null;

create table runs (
    run_id text not null,
    org_id text not null,
    play text not null,
    input jsonb not null,
    options jsonb not null,
    state text not null,
    attempt integer not null default 0,
    session_id text,
    claim text,
    wakes integer not null default 0,
    wakes_seen integer not null default 0,
    result jsonb,
    error jsonb,
    number bigint generated always as identity,
    created_at timestamptz not null default now(),
    started_at timestamptz,
    ended_at timestamptz,
    hinted_at timestamptz,
    primary key (run_id)
);

create index runs_live_idx on runs (number) where state in ('queued', 'running', 'waiting');

create table run_journal (
    run_id text not null,
    seq integer not null,
    op_key text not null,
    kind text not null,
    digest text not null,
    outcome jsonb not null,
    attempt integer not null,
    primary key (run_id, seq),
    unique (run_id, op_key)
);

create table boundaries (
    run_id text not null,
    op_key text not null,
    kind text not null,
    state text not null,
    due_at timestamptz,
    outcome jsonb,
    primary key (run_id, op_key)
);

create index boundaries_due_idx on boundaries (due_at) where state = 'armed' and due_at is not null;

create table datasets (
    dataset_id bigint generated always as identity,
    run_id text not null,
    key text not null,
    namespace text not null,
    state text not null,
    columns text[] not null,
    source_hash text not null,
    on_row_error text not null,
    op_key text not null,
    pages_seeded integer not null default 0,
    pages_total integer,
    rows_seeded bigint not null default 0,
    duplicates bigint not null default 0,
    next_position bigint not null default 0,
    input_digest text not null default '',
    next_page integer not null default 0,
    claimed_from integer not null default 0,
    pages_settled integer not null default 0,
    pages_parked integer not null default 0,
    winding boolean not null default false,
    created_at timestamptz not null default now(),
    ended_at timestamptz,
    primary key (dataset_id),
    unique (run_id, key)
) with (fillfactor = 50);

create index datasets_open_idx on datasets (dataset_id) where state in ('seeding', 'running', 'failing');

create index datasets_winding_idx on datasets (dataset_id) where winding;

create table dataset_counts (
    dataset_id bigint not null,
    session_id text not null,
    completed bigint not null default 0,
    failed bigint not null default 0,
    cancelled bigint not null default 0,
    superseded bigint not null default 0,
    primary key (dataset_id, session_id)
) with (fillfactor = 50);

create table run_usage (
    run_id text not null,
    tool text not null,
    session_id text not null,
    items bigint not null default 0,
    batches bigint not null default 0,
    capacity bigint not null default 0,
    cached bigint not null default 0,
    followed bigint not null default 0,
    credits double precision not null default 0,
    write_id text,
    primary key (run_id, tool, session_id)
) with (fillfactor = 50);

create table pages (
    dataset_id bigint not null,
    page integer not null,
    state text not null,
    first_position bigint not null,
    end_position bigint not null,
    primary key (dataset_id, page)
) with (fillfactor = 50);

create index pages_out_idx on pages (dataset_id, page) where state in ('out', 'parked');

create index pages_seeded_idx on pages (dataset_id, page) where state = 'seeded';

create table slices (
    dataset_id bigint not null,
    page integer not null,
    slice integer not null,
    first_position bigint not null,
    end_position bigint not null,
    state text not null,
    session_id text,
    claim text,
    fence integer not null default 0,
    taken_at timestamptz,
    sent_at timestamptz,
    sends integer not null default 0,
    epoch text,
    primary key (dataset_id, page, slice)
) with (fillfactor = 50);

create table run_rows (
    dataset_id bigint not null,
    position bigint not null,
    page integer not null,
    row_key text not null,
    input jsonb not null,
    state text not null,
    fence integer not null default 0,
    superseded boolean not null default false,
    error jsonb,
    crash_count integer not null default 0,
    primary key (dataset_id, position),
    unique (dataset_id, row_key)
) with (fillfactor = 50);

create table sheet_rows (
    org_id text not null,
    play text not null,
    namespace text not null,
    row_key text not null,
    data jsonb not null,
    cell_meta jsonb not null,
    write_version bigint not null,
    run_id text not null,
    updated_at timestamptz not null default now(),
    primary key (org_id, play, namespace, row_key)
) partition by hash (org_id, play, namespace);

create table receipts (
    key text not null,
    org_id text not null,
    tool text not null,
    run_id text not null,
    state text not null,
    fence bigint not null,
    output bytea,
    error jsonb,
    terminal boolean not null,
    session_id text not null,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    primary key (key)
);

create table run_logs (
    run_id text not null,
    scope text not null,
    n integer not null,
    level text not null,
    message text not null,
    fields jsonb not null,
    at timestamptz not null default now(),
    primary key (run_id, scope, n)
);
"""


def upgrade() -> None:
    for statement in TABLES.split(";"):
        if statement.strip():
            op.execute(statement)
    for part in range(SHEET_PARTITIONS):
        op.execute(
            f"create table sheet_rows_{part} partition of sheet_rows"
            f" for values with (modulus {SHEET_PARTITIONS}, remainder {part}) with (fillfactor=80)"
        )


def downgrade() -> None:
    raise NotImplementedError("the first schema has nothing before it: drop the database instead")
