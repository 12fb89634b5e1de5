"""Columns, sheets and their views."""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

STATEMENTS = """
alter table datasets add column mode text not null default 'default';
alter table datasets add column kept bigint not null default 0;
alter table datasets add column left_out bigint not null default 0;
alter table datasets add column input_columns text[] not null default '{}';
create table sheet_columns (
    org_id text not null,
    play text not null,
    namespace text not null,
    name text not null,
    number integer not null,
    identifier text not null,
    primary key (org_id, play, namespace, name)
);
alter table sheet_rows add column state text not null default 'completed';
update sheet_rows set state = 'failed'
where cell_meta = '{}' or jsonb_path_exists(cell_meta, '$.*.state ? (@ == "failed")');
"""


def upgrade() -> None:
    for statement in STATEMENTS.split(";"):
        if statement.strip():
            op.execute(statement)


def downgrade() -> None:
    raise NotImplementedError("what is stored would be lost: drop the database instead")
