"""Rules that words and findings follow."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table with its one row, of rules that nobody has, so that the rows are made again."""
    table = op.create_table(
        "derived_rules",
        sa.Column("id", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("rules", sa.String(length=64), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("reached", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.bulk_insert(table, [{"id": 1, "rules": "", "version": "0", "reached": None}])


def downgrade() -> None:
    """Forget the rules."""
    op.drop_table("derived_rules")
