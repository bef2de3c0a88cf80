"""Idempotency keys: requests that are answered once, however often they are sent."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the empty table."""
    op.create_table(
        "idempotency_keys",
        sa.Column("caller", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("request", sa.String(length=64), nullable=False),
        sa.Column("attempt", sa.String(length=32), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.Column("leased_until", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("headers", sa.JSON(), nullable=True),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("caller", "key"),
    )
    op.create_index("ix_idempotency_keys_created", "idempotency_keys", ["created"])


def downgrade() -> None:
    """Forget all keys."""
    op.drop_table("idempotency_keys")
