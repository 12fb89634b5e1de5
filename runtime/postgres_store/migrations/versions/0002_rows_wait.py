"""Rows wait outside their slices; crashes of rows and runs are counted."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

STATEMENTS = """
create table row_waits (
    dataset_id bigint not null,
    position bigint not null,
    kind text not null,
    due_at timestamptz,
    detail text not null,
    primary key (dataset_id, position)
);

create index row_waits_due_idx on row_waits (due_at) where due_at is not null;

alter table sessions add column closed boolean not null default false;

alter table runs add column crashes integer not null default 0, add column crash_progress bigint not null default 0
"""


def upgrade() -> None:
    for statement in STATEMENTS.split(";"):
        op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("rows that wait would be lost: drop the database instead")
