"""How many child plays ended in a dataset's rows, and the child runs of a run."""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

# If the index comes to nothing all of this is done again.
COLUMNS = """
alter table dataset_counts add column if not exists children_ok bigint not null default 0,
  add column if not exists children_failed bigint not null default 0
"""
INDEX = """
create index concurrently runs_root_idx on runs ((options -> 'lineage' ->> 'root')) where options ? 'lineage'
"""


def upgrade() -> None:
    op.execute(COLUMNS)
    with op.get_context().autocommit_block():
        bind = op.get_bind()
        wait = bind.exec_driver_sql("show lock_timeout").scalar_one()
        # It waits for older transactions, and nobody waits for it.
        bind.exec_driver_sql("set lock_timeout = '10min'")
        try:
            bind.exec_driver_sql("drop index concurrently if exists runs_root_idx")
            bind.exec_driver_sql(INDEX)
        finally:
            bind.exec_driver_sql(f"set lock_timeout = '{wait}'")


def downgrade() -> None:
    raise NotImplementedError("what is stored would be lost: drop the database instead")
