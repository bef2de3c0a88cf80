"""Texts of metadata that are too long for PostgreSQL's indexes: filters no longer look at them."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

_MAX_BYTES = 2000


def upgrade() -> None:
    """Let go of their rows; the images keep them among their details."""
    # Both count the bytes of UTF-8.
    size = "length(CAST(text_value AS BLOB))"
    if op.get_bind().dialect.name == "postgresql":
        size = "octet_length(text_value)"
    op.execute(sa.text(f"DELETE FROM attributes WHERE {size} > {_MAX_BYTES}"))


def downgrade() -> None:
    """Leave them out: they are found again once their images are written."""
