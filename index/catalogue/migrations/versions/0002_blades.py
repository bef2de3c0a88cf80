"""Kind of a model's embeddings: number of basis vectors, 1 or k of a k-blade, and whether signs count."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Models that are there already have embeddings of one vector with a sign."""
    op.add_column("models", sa.Column("blades", sa.Integer(), nullable=False, server_default="1"))
    op.add_column("models", sa.Column("unsigned", sa.Boolean(), nullable=False, server_default=sa.false()))


def downgrade() -> None:
    """Forget it."""
    op.drop_column("models", "unsigned")
    op.drop_column("models", "blades")
