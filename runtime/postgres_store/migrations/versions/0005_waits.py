"""Rows and bodies wait for sleeps and events."""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

STATEMENTS = """
alter table boundaries add column org_id text, add column event_key text, add column event_id text,
  add column timeout_outcome jsonb, add column prepared jsonb, add column holder integer not null default 0,
  add column armed_at timestamptz not null default now();

create index boundaries_event_idx on boundaries (org_id, event_key) where state = 'armed' and event_key is not null;

create table row_boundaries (
    dataset_id bigint not null,
    position bigint not null,
    key text not null,
    kind text not null,
    state text not null,
    due_at timestamptz,
    outcome jsonb,
    org_id text not null,
    event_key text,
    event_id text,
    timeout_outcome jsonb,
    prepared jsonb,
    holder integer not null default 0,
    armed_at timestamptz not null default now(),
    primary key (dataset_id, position, key)
);

create index row_boundaries_event_idx on row_boundaries (org_id, event_key)
    where state = 'armed' and event_key is not null;

create table delivered_events (
    org_id text not null,
    event_id text not null,
    event_key text not null,
    payload jsonb not null,
    number bigint generated always as identity,
    created_at timestamptz not null default now(),
    delivered_at timestamptz,
    primary key (org_id, event_id)
);

create index delivered_events_key_idx on delivered_events (org_id, event_key, number);

create index delivered_events_age_idx on delivered_events (created_at);

create index delivered_events_open_idx on delivered_events (created_at) where delivered_at is null
"""


def upgrade() -> None:
    for statement in STATEMENTS.split(";"):
        if statement.strip():
            op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("what is stored would be lost: drop the database instead")
