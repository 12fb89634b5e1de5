"""Budgets of runs and lineages."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

STATEMENTS = """
create table budgets (
    account text not null primary key,
    max_credits double precision,
    max_tool_calls bigint,
    max_retries bigint,
    max_child_plays bigint,
    credits_spent double precision not null default 0,
    credits_held double precision not null default 0,
    tool_calls bigint not null default 0,
    retries bigint not null default 0,
    child_plays bigint not null default 0,
    refusals bigint not null default 0,
    short_since timestamptz,
    refused_at timestamptz,
    short_price double precision,
    created_at timestamptz not null default now()
) with (fillfactor = 50);

create index budgets_short_idx on budgets (short_since) where short_since is not null;

create table budget_runs (
    account text not null,
    run_id text not null,
    primary key (account, run_id)
);

create index budget_runs_run_id_idx on budget_runs (run_id);

create table budget_calls (
    account text not null,
    key text not null,
    fence bigint not null,
    held double precision,
    spent double precision not null default 0,
    calls integer not null default 0,
    primary key (account, key)
) with (fillfactor = 50);

create index budget_calls_held_idx on budget_calls (account) where held is not null;

create table budget_children (
    account text not null,
    run_id text not null,
    namespace text not null,
    primary key (account, run_id, namespace)
)
"""


def upgrade() -> None:
    for statement in STATEMENTS.split(";"):
        if statement.strip():
            op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("what is stored would be lost: drop the database instead")
