"""Reports that were received for studies."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0022"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the empty table."""
    key = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    compared = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "reports",
        sa.Column("id", key, nullable=False),
        sa.Column("collection_id", key, nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("study", compared, nullable=True),
        sa.Column("keys", sa.JSON(), nullable=False),
        sa.Column("patient", sa.String(length=16), nullable=True),
        sa.Column("identity", sa.String(length=16), nullable=True),
        sa.Column("status", sa.String(length=12), nullable=False),
        sa.Column("issued", sa.Text(), nullable=True),
        sa.Column("sections", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["collection_id"], ["collections.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("collection_id", "digest", name="uq_reports_digest"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_reports_study", "reports", ["collection_id", "study"])


def downgrade() -> None:
    """Forget the reports that were received; images keep theirs."""
    op.drop_table("reports")
