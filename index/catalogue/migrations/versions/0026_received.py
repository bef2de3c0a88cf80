"""The day on which a report was received."""

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the day; reports that are there count as received today."""
    op.add_column("reports", sa.Column("received", sa.String(length=10), nullable=True))
    reports = sa.table("reports", sa.column("received", sa.String(length=10)))
    op.execute(reports.update().values(received=datetime.now(UTC).date().isoformat()))


def downgrade() -> None:
    """Forget the days."""
    op.drop_column("reports", "received")
