"""Time of a generation's announcement: services preload it before it becomes active."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """No generation is announced yet."""
    op.add_column("generations", sa.Column("announced", sa.Text(), nullable=True))


def downgrade() -> None:
    """Forget it."""
    op.drop_column("generations", "announced")
