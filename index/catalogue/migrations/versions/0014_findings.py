"""Findings that reports state."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table; findings are taken in by `index.catalogue.migrations.derived`."""
    key = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    compared = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "findings",
        sa.Column("image_id", key, nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("start", sa.Integer(), nullable=False),
        sa.Column("finding", compared, nullable=False),
        sa.Column("stop", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.Column("collection_id", key, nullable=False),
        sa.Column("image_finding", compared, nullable=False),
        sa.ForeignKeyConstraint(["collection_id"], ["collections.id"]),
        sa.ForeignKeyConstraint(["image_id"], ["images.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("image_id", "position", "start", "finding"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_findings_image_finding", "findings", ["collection_id", "image_finding", "image_id"])


def downgrade() -> None:
    """Forget the findings."""
    op.drop_table("findings")
