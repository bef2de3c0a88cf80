"""Files in the store that no image may be using, and an index that tells which are in use."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the empty table of orphaned files."""
    op.create_table(
        "loose_files",
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("sha256"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_images_sha256", "images", ["sha256"])


def downgrade() -> None:
    """Drop the table; the files stay."""
    op.drop_index("ix_images_sha256", "images")
    op.drop_table("loose_files")
