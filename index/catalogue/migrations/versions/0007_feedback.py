"""Feedback: what people say of the hits of searches."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the empty table of relevance judgements."""
    key = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "feedback",
        sa.Column("image_id", key, nullable=False),
        sa.Column("query_digest", sa.String(length=64), nullable=False),
        sa.Column("collection_id", key, nullable=False),
        sa.Column("query", sa.JSON(), nullable=False),
        sa.Column("relevant", sa.Boolean(), nullable=False),
        sa.Column("model", sa.String(length=100), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["collection_id"], ["collections.id"]),
        sa.ForeignKeyConstraint(["image_id"], ["images.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("image_id", "query_digest"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_feedback_created", "feedback", ["collection_id", "created"])


def downgrade() -> None:
    """Forget what was said."""
    op.drop_table("feedback")
