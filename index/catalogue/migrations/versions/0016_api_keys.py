"""Keys of the service's interface."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(length=20), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("grants", sa.JSON(), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.Column("expires", sa.Text(), nullable=True),
        sa.Column("revoked", sa.Text(), nullable=True),
        sa.Column("used", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_api_keys_name", "api_keys", ["name"])


def downgrade() -> None:
    """Forget all keys."""
    op.drop_table("api_keys")
