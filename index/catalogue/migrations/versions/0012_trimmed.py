"""Up to which sequence number the removals of a collection are forgotten."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the sequence number up to which the log of removals is trimmed: none yet."""
    op.add_column("collections", sa.Column("trimmed", sa.BigInteger(), nullable=False, server_default="0"))


def downgrade() -> None:
    """Take the number away."""
    op.drop_column("collections", "trimmed")
