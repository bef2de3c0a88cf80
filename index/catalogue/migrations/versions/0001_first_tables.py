"""The first tables: collections, images with their texts and attributes, models, generations, embeddings."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def _key() -> sa.types.TypeEngine[int]:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _compared_text() -> sa.types.TypeEngine[str]:
    return sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "collections",
        sa.Column("id", _key(), nullable=False),
        sa.Column("name", sa.String(length=100), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("name"),
    )
    op.create_table(
        "models",
        sa.Column("id", _key(), nullable=False),
        sa.Column("digest", sa.String(length=100), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("dim", sa.Integer(), nullable=False),
        sa.Column("recipe", sa.Text(), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.Column("metrics", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("digest"),
    )
    op.create_table(
        "fields",
        sa.Column("collection_id", _key(), nullable=False),
        sa.Column("name", _compared_text(), nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.ForeignKeyConstraint(["collection_id"], ["collections.id"]),
        sa.PrimaryKeyConstraint("collection_id", "name", "kind"),
    )
    op.create_table(
        "generations",
        sa.Column("id", _key(), nullable=False),
        sa.Column("collection_id", _key(), nullable=False),
        sa.Column("model_id", _key(), nullable=False),
        sa.Column("uid", sa.String(length=32), nullable=False),
        sa.Column("state", sa.String(length=10), nullable=False),
        sa.ForeignKeyConstraint(["collection_id"], ["collections.id"]),
        sa.ForeignKeyConstraint(["model_id"], ["models.id"]),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_generations_state", "generations", ["collection_id", "state"])
    op.create_table(
        "images",
        sa.Column("id", _key(), nullable=False),
        sa.Column("collection_id", _key(), nullable=False),
        sa.Column("external_id", _compared_text(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.Column("media_type", sa.String(length=100), nullable=False),
        sa.Column("width", sa.Integer(), nullable=False),
        sa.Column("height", sa.Integer(), nullable=False),
        sa.Column("split", _compared_text(), nullable=False),
        sa.Column("group_name", _compared_text(), nullable=True),
        sa.Column("report", sa.Text(), nullable=True),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("details", sa.JSON(), nullable=False),
        sa.Column("record_digest", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["collection_id"], ["collections.id"]),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("collection_id", "external_id", name="uq_images_external_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_images_group", "images", ["collection_id", "group_name"])
    op.create_index("ix_images_split", "images", ["collection_id", "split"])
    op.create_table(
        "attributes",
        sa.Column("image_id", _key(), nullable=False),
        sa.Column("name", _compared_text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("collection_id", _key(), nullable=False),
        sa.Column("kind", sa.String(length=10), nullable=False),
        sa.Column("text_value", _compared_text(), nullable=True),
        sa.Column("number_value", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["collection_id"], ["collections.id"]),
        sa.ForeignKeyConstraint(["image_id"], ["images.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("image_id", "name", "position"),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_attributes_number", "attributes", ["collection_id", "name", "kind", "number_value", "image_id"]
    )
    op.create_index("ix_attributes_text", "attributes", ["collection_id", "name", "text_value", "image_id"])
    op.create_table(
        "embeddings",
        sa.Column("generation_id", _key(), nullable=False),
        sa.Column("image_id", _key(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["generation_id"], ["generations.id"]),
        sa.ForeignKeyConstraint(["image_id"], ["images.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("generation_id", "image_id"),
    )
    op.create_index("ix_embeddings_sequence", "embeddings", ["generation_id", "sequence"])
    op.create_table(
        "texts",
        sa.Column("image_id", _key(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["image_id"], ["images.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("image_id", "position"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    """Drop the tables."""
    for table in ("texts", "embeddings", "attributes", "images"):
        op.drop_table(table)
    for table in ("generations", "fields", "models", "collections"):
        op.drop_table(table)
