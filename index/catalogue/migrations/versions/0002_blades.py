"""How many vectors make up one of a model's embeddings: 1, or k of a k-blade."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Models that are there already have embeddings of one vector."""
    op.add_column("models", sa.Column("blades", sa.Integer(), nullable=False, server_default="1"))


def downgrade() -> None:
    """Forget it."""
    op.drop_column("models", "blades")
