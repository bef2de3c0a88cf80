"""Words on PostgreSQL: those that SQLite finds, in place of what PostgreSQL's parser takes for words."""

import re
import unicodedata

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_IMAGES_AT_ONCE = 1000
_MAX_CHARACTERS = 200_000
_MAX_WORD_LENGTH = 500
_WRITTEN = (
    "coalesce("
    "(SELECT string_agg(text, chr(10) ORDER BY position) FROM texts WHERE image_id = images.id), '') "
    "|| chr(10) || coalesce(report, '')"
)


def upgrade() -> None:
    """Take in the words of all images again."""
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":
        return
    some = sa.text(f"SELECT id, {_WRITTEN} FROM images WHERE id > :after ORDER BY id LIMIT {_IMAGES_AT_ONCE}")
    take_in = sa.text("INSERT INTO image_words (image_id, words) VALUES (:key, CAST(:words AS tsvector))")
    # Without it, all rows are put into the index at once.
    op.drop_index("ix_image_words", "image_words")
    op.execute("TRUNCATE image_words")
    after = 0
    while rows := connection.execute(some, {"after": after}).all():
        connection.execute(take_in, [{"key": key, "words": _tsvector(written)} for key, written in rows])
        after = rows[-1][0]
    op.execute("CREATE INDEX ix_image_words ON image_words USING gin (words)")


def downgrade() -> None:
    """Have PostgreSQL split the words again."""
    if op.get_bind().dialect.name != "sqlite":
        op.execute(
            f"UPDATE image_words SET words = to_tsvector('simple', left({_WRITTEN}, {_MAX_CHARACTERS // 2})) "
            "FROM images WHERE images.id = image_words.image_id"
        )


def _tsvector(written: str) -> str:
    places: dict[str, list[int]] = {}
    text = unicodedata.normalize("NFC", written[:_MAX_CHARACTERS]).lower()
    for place, word in enumerate(re.findall(r"[^\W_]+", text), 1):
        places.setdefault(f"'{word[:_MAX_WORD_LENGTH]}'", []).append(place)
    return " ".join(f"{word}:{','.join(map(str, own))}" for word, own in places.items())
