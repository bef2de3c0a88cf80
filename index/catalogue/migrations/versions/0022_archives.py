"""Tables of the studies and instances that were brought over from image archives."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the empty tables."""
    op.create_table(
        "archives",
        sa.Column("collection_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("archive", sa.String(length=16), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("instances", sa.BigInteger(), nullable=False),
        sa.Column("selection", sa.String(length=16), nullable=False),
        sa.ForeignKeyConstraint(["collection_id"], ["collections.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("collection_id", "archive"),
    )
    op.create_table(
        "archive_studies",
        sa.Column("collection_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("archive", sa.String(length=16), nullable=False),
        sa.Column("study", sa.String(length=16), nullable=False),
        sa.Column("day", sa.String(length=16), nullable=False),
        sa.Column("selection", sa.String(length=16), nullable=False),
        sa.Column("checked", sa.Text(), nullable=True),
        sa.Column("instances", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["collection_id"], ["collections.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("collection_id", "archive", "study"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    """Forget what was brought over; it is compared anew."""
    op.drop_table("archive_studies")
    op.drop_table("archives")
