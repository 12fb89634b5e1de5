"""Events, schedules and what people see of runs."""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

STATEMENTS = """
alter table runs add column source_hash text;
alter table runs add column active_s double precision not null default 0;
alter table runs add column active_at timestamptz;
alter table runs add column unavailable_since timestamptz;
alter table runs add column unavailable_at timestamptz;
alter table runs add column unavailable_progress bigint not null default 0;

create table run_samples (
  run_id text not null,
  at timestamptz not null default now(),
  completed bigint not null,
  failed bigint not null,
  cancelled bigint not null,
  usage jsonb not null,
  primary key (run_id, at)
);

create table lane_samples (
  org_id text not null,
  lane text not null,
  provider text not null,
  at timestamptz not null default now(),
  requests bigint not null,
  items bigint not null,
  capacity bigint not null,
  in_flight integer not null,
  waiting integer not null,
  rate_per_s double precision,
  reason text not null,
  closed_until timestamptz,
  primary key (org_id, lane, provider, at)
);
create index lane_samples_at_idx on lane_samples (at);

create table play_schedules (
  org_id text not null,
  play text not null,
  cron text not null,
  timezone text not null,
  last_tick timestamptz not null default now(),
  primary key (org_id, play, cron, timezone)
)
"""


def upgrade() -> None:
    for statement in STATEMENTS.split(";"):
        if statement.strip():
            op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("what is stored would be lost: drop the database instead")
