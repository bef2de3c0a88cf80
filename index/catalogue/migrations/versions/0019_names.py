"""Aliases of collections, and the names that collections had before."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the empty tables."""
    key = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "aliases",
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("collection_id", key, nullable=False),
        sa.ForeignKeyConstraint(["collection_id"], ["collections.id"]),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "former_names",
        sa.Column("collection_id", key, nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.ForeignKeyConstraint(["collection_id"], ["collections.id"]),
        sa.PrimaryKeyConstraint("collection_id", "name"),
    )


def downgrade() -> None:
    """Forget aliases and former names."""
    op.drop_table("former_names")
    op.drop_table("aliases")
