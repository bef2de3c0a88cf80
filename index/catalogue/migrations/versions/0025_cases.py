"""Lists of images that people keep, with notes."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the empty tables."""
    key = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    compared = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "case_lists",
        sa.Column("collection_id", key, nullable=False),
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("name", compared, nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["collection_id"], ["collections.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("collection_id", "id"),
        sa.UniqueConstraint("collection_id", "name", name="uq_case_lists_name"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "case_entries",
        sa.Column("collection_id", key, nullable=False),
        sa.Column("list_id", sa.String(length=64), nullable=False),
        sa.Column("image_id", key, nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("saved", sa.Text(), nullable=False),
        sa.Column("user_id", sa.Text(), nullable=True),
        sa.Column("user_name", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["collection_id", "list_id"], ["case_lists.collection_id", "case_lists.id"], ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["image_id"], ["images.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("collection_id", "list_id", "image_id"),
        sa.UniqueConstraint("collection_id", "list_id", "position", name="uq_case_entries_position"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_case_entries_image", "case_entries", ["image_id"])


def downgrade() -> None:
    """Forget the lists."""
    op.drop_table("case_entries")
    op.drop_table("case_lists")
