"""Since when rows wait."""

from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("alter table row_waits add column since timestamptz not null default now()")


def downgrade() -> None:
    raise NotImplementedError("what is stored would be lost: drop the database instead")
