"""Sequence number of an image's last write, so that filters are evaluated again on changed images only."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Take all images to be older than the first transaction."""
    op.add_column("images", sa.Column("sequence", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_index("ix_images_sequence", "images", ["collection_id", "sequence"])


def downgrade() -> None:
    """Forget it."""
    op.drop_index("ix_images_sequence", "images")
    op.drop_column("images", "sequence")
