"""Removals, keys and vectors of texts, and words: what live writes and searches among texts need."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_MAX_CHARACTERS = 200_000


def _key() -> sa.types.TypeEngine[int]:
    return sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Texts keep their places; the words of images that are there are taken in."""
    op.create_table(
        "removals",
        sa.Column("collection_id", _key(), nullable=False),
        sa.Column("target", sa.String(length=10), nullable=False),
        sa.Column("key", sa.BigInteger(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["collection_id"], ["collections.id"]),
        sa.PrimaryKeyConstraint("collection_id", "target", "key"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_removals_sequence", "removals", ["collection_id", "target", "sequence"])
    _give_texts_keys()
    op.create_table(
        "text_embeddings",
        sa.Column("generation_id", _key(), nullable=False),
        sa.Column("text_id", _key(), nullable=False),
        sa.Column("sequence", sa.BigInteger(), nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["generation_id"], ["generations.id"]),
        sa.ForeignKeyConstraint(["text_id"], ["texts.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("generation_id", "text_id"),
    )
    op.create_index("ix_text_embeddings_sequence", "text_embeddings", ["generation_id", "sequence"])
    # Without these, removing an image would read every embedding of every generation.
    op.create_index("ix_embeddings_image", "embeddings", ["image_id"])
    op.create_index("ix_text_embeddings_text", "text_embeddings", ["text_id"])
    op.add_column("collections", sa.Column("view", sa.String(length=20), nullable=True))
    op.add_column("generations", sa.Column("created", sa.Text(), nullable=True))
    op.add_column("generations", sa.Column("activated", sa.Text(), nullable=True))
    op.add_column("generations", sa.Column("comparison", sa.JSON(), nullable=True))
    _take_in_words()


def downgrade() -> None:
    """Forget it; texts keep their places."""
    op.drop_table("image_words")
    for table, columns in (
        ("generations", ("comparison", "activated", "created")),
        ("collections", ("view",)),
    ):
        for column in columns:
            op.drop_column(table, column)
    op.drop_index("ix_embeddings_image", "embeddings")
    op.drop_table("text_embeddings")
    op.drop_table("removals")
    op.rename_table("texts", "texts_with_keys")
    op.create_table(
        "texts",
        sa.Column("image_id", _key(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["image_id"], ["images.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("image_id", "position"),
        sqlite_with_rowid=False,
    )
    op.execute("INSERT INTO texts SELECT image_id, position, text FROM texts_with_keys")
    op.drop_table("texts_with_keys")


def _give_texts_keys() -> None:
    op.rename_table("texts", "texts_without_keys")
    op.create_table(
        "texts",
        sa.Column("id", _key(), nullable=False),
        sa.Column("image_id", _key(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["image_id"], ["images.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("image_id", "position", name="uq_texts_position"),
        sqlite_autoincrement=True,
    )
    op.execute(
        "INSERT INTO texts (image_id, position, text) "
        "SELECT image_id, position, text FROM texts_without_keys ORDER BY image_id, position"
    )
    op.drop_table("texts_without_keys")


def _take_in_words() -> None:
    if op.get_bind().dialect.name == "sqlite":
        op.execute(
            "CREATE VIRTUAL TABLE image_words USING fts5(words, tokenize = 'unicode61 remove_diacritics 2')"
        )
        texts = "SELECT group_concat(text, char(10)) FROM texts WHERE image_id = images.id"
        words = f"substr(coalesce(({texts}), '') || char(10) || coalesce(report, ''), 1, {_MAX_CHARACTERS})"
        op.execute(f"INSERT INTO image_words (rowid, words) SELECT id, {words} FROM images")
        return
    op.execute(
        "CREATE TABLE image_words (image_id BIGINT PRIMARY KEY REFERENCES images (id) ON DELETE CASCADE, "
        "words TSVECTOR NOT NULL)"
    )
    op.execute("CREATE INDEX ix_image_words ON image_words USING gin (words)")
    texts = "SELECT string_agg(text, chr(10) ORDER BY position) FROM texts WHERE image_id = images.id"
    written = f"substr(coalesce(({texts}), '') || chr(10) || coalesce(report, ''), 1, {_MAX_CHARACTERS // 2})"
    # PostgreSQL's parser makes two words and more of one with a hyphen.
    words = f"to_tsvector('simple', {written})"
    op.execute(f"INSERT INTO image_words (image_id, words) SELECT id, {words} FROM images")
