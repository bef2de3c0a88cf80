"""Who activated a generation, and from which score on its hits count."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add both; generations that were activated count as activated by a person, since nobody knows."""
    op.add_column(
        "generations", sa.Column("by_hand", sa.Boolean(), nullable=False, server_default=sa.false())
    )
    op.add_column("generations", sa.Column("confidence", sa.JSON(none_as_null=True), nullable=True))
    generations = sa.table(
        "generations", sa.column("by_hand", sa.Boolean()), sa.column("activated", sa.Text())
    )
    op.execute(generations.update().where(generations.c.activated.is_not(None)).values(by_hand=True))
