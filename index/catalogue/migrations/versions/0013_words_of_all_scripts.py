"""Words as recoquest splits them, the same on both databases, and the long words of each collection."""

import sqlalchemy as sa
from alembic import op

from index.catalogue.tables import ComparedText, Key

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

_MAX_CHARACTERS = 200_000


def upgrade() -> None:
    """Make the tables; words are taken in by `index.catalogue.migrations.derived`."""
    op.create_table(
        "vocabulary",
        sa.Column("collection_id", Key, nullable=False),
        sa.Column("word", ComparedText, nullable=False),
        sa.Column("images", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["collection_id"], ["collections.id"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("collection_id", "word"),
        sqlite_with_rowid=False,
    )
    if op.get_bind().dialect.name == "sqlite":
        op.drop_table("image_words")
        # The words are split already: this tokenizer splits at spaces and leaves other scripts alone.
        op.execute("CREATE VIRTUAL TABLE image_words USING fts5(words, tokenize = 'ascii')")
        return
    # Without it, all rows are put into the index at once.
    op.drop_index("ix_image_words", "image_words")
    op.execute("TRUNCATE image_words")
    op.add_column("image_words", sa.Column("runs", sa.Text(), nullable=False, server_default=""))
    op.execute("CREATE INDEX ix_image_words ON image_words USING gin (words)")


def downgrade() -> None:
    """Have the databases split the words again."""
    op.drop_table("vocabulary")
    texts = "SELECT {} FROM texts WHERE image_id = images.id"
    written = "substr(coalesce(({}), '') || {} || coalesce(report, ''), 1, {})"
    if op.get_bind().dialect.name == "sqlite":
        op.drop_table("image_words")
        op.execute(
            "CREATE VIRTUAL TABLE image_words USING fts5(words, tokenize = 'unicode61 remove_diacritics 2')"
        )
        words = written.format(texts.format("group_concat(text, char(10))"), "char(10)", _MAX_CHARACTERS)
        op.execute(f"INSERT INTO image_words (rowid, words) SELECT id, {words} FROM images")
        return
    op.drop_column("image_words", "runs")
    joined = texts.format("string_agg(text, chr(10) ORDER BY position)")
    words = written.format(joined, "chr(10)", _MAX_CHARACTERS // 2)
    op.execute(
        f"UPDATE image_words SET words = to_tsvector('simple', {words}) "
        "FROM images WHERE images.id = image_words.image_id"
    )
