"""The rows of the full-text index, and the long words that each collection's images have.

On SQLite, `image_words` is an FTS5 table of the pieces of each image with spaces between them. On PostgreSQL
it holds them as a tsvector, beside the runs in which a phrase of pairs is looked for: a tsvector keeps no
more than 256 places of a word, and none beyond the 16,383rd.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import bindparam, select, text
from sqlalchemy.dialects.postgresql import insert as insert_postgresql
from sqlalchemy.dialects.sqlite import insert as insert_sqlite
from sqlalchemy.orm import Session

from index.catalogue.full_text.inflection import is_compound
from index.catalogue.full_text.tokenizer import indexed_pieces, indexed_text, runs
from index.catalogue.schema import DerivedRow
from index.catalogue.tables import ImageRow, TextRow, VocabularyRow

# Images whose texts are in memory together.
_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True)
class IndexedWords:
    """The words of an image's texts and report, as the full-text index of either database takes them.

    Attributes:
        words: As FTS5 indexes them.
        vector: As PostgreSQL reads a tsvector.
        runs: Runs of scripts without spaces, in which PostgreSQL looks for phrases.
        compounds: Words that may be compounds.
    """

    words: str
    vector: str
    runs: str
    compounds: frozenset[str]

    @classmethod
    def of(cls, texts: Sequence[str], report: str | None) -> "IndexedWords":
        """Split the texts of an image and its report; of more than `MAX_CHARACTERS` their beginning."""
        folded = indexed_text("\n".join([*texts, report or ""]))
        found = indexed_pieces(folded)
        return cls(" ".join(found), _tsvector(found), runs(folded), frozenset(_compounds(found)))


def replace_words(session: Session, collection_id: int, words: Mapping[int, IndexedWords]) -> None:
    """Take in the words of these images, by their keys, in place of those that they have."""
    if words:
        remove_words(session, list(words))
        add_words(session, collection_id, words)


def add_words(session: Session, collection_id: int, words: Mapping[int, IndexedWords]) -> None:
    """Take in the words of these images, by their keys, of which none have been, in the caller's transaction.

    The caller holds the lock of the collection, as every writer of its images does.
    """
    if not words:
        return
    if _is_sqlite(session):
        rows = [{"key": key, "words": own.words} for key, own in words.items()]
        session.execute(_TAKE_IN_SQLITE, rows)
    else:
        rows = [{"key": key, "words": own.vector, "runs": own.runs} for key, own in words.items()]
        session.execute(_TAKE_IN_POSTGRESQL, rows)
    counted = _counted(session, words)
    _count(session, collection_id, Counter(word for key in counted for word in words[key].compounds))


def add_stored_words(session: Session, keys: Sequence[int]) -> None:
    """Take in the words of stored images, of which none have been, from their texts and reports."""
    for start in range(0, len(keys), _AT_ONCE):
        words: dict[int, dict[int, IndexedWords]] = {}
        for key, collection, texts, report in _written(session, keys[start : start + _AT_ONCE]):
            words.setdefault(collection, {})[key] = IndexedWords.of(texts, report)
        for collection, own in words.items():
            add_words(session, collection, own)


def remove_words(session: Session, keys: Sequence[int]) -> None:
    """Forget the words of these images, which are still there, in the caller's transaction."""
    sqlite = _is_sqlite(session)
    counts: dict[int, Counter[str]] = {}
    held = session.execute(_HELD_SQLITE if sqlite else _HELD_POSTGRESQL, {"keys": list(keys)})
    counted = _counted(session, keys)
    for key, collection, words in held:
        if key in counted:
            counts.setdefault(collection, Counter()).update(_compounds(words.split(" ")))
    session.execute(_FORGET_SQLITE if sqlite else _FORGET_POSTGRESQL, {"keys": list(keys)})
    for collection, lost in counts.items():
        _count(session, collection, Counter({word: -count for word, count in lost.items()}))
        if lost:
            rows = [{"collection": collection, "word": word} for word in sorted(lost)]
            session.execute(_FORGET_WORD, rows)


def merge_words(session: Session) -> None:
    """Rewrite the index without words of images that are gone, in the caller's transaction.

    FTS5 keeps them in its segments until these are merged.
    """
    if _is_sqlite(session):
        session.execute(text("INSERT INTO image_words (image_words) VALUES ('optimize')"))


def _counted(session: Session, keys: Iterable[int]) -> set[int]:
    """Return those of some images whose words the vocabulary counts: not yet all, while it is made again."""
    reached = session.execute(select(DerivedRow.reached)).scalar_one()
    return {key for key in keys if reached is None or key <= reached}


def _is_sqlite(session: Session) -> bool:
    return session.get_bind().dialect.name == "sqlite"


def _written(session: Session, keys: Sequence[int]) -> Iterator[tuple[int, int, Sequence[str], str | None]]:
    """Give the key, the collection, the texts and the report of each image, in order of key."""
    written: dict[int, list[str]] = {}
    texts = select(TextRow.image_id, TextRow.text).where(TextRow.image_id.in_(keys))
    for image, said in session.execute(texts.order_by(TextRow.image_id, TextRow.position)):
        written.setdefault(image, []).append(said)
    images = select(ImageRow.id, ImageRow.collection_id, ImageRow.report).where(ImageRow.id.in_(keys))
    for key, collection, report in session.execute(images.order_by(ImageRow.id)):
        yield key, collection, written.pop(key, []), report


def _compounds(found: Iterable[str]) -> set[str]:
    """Return the words of an image that may be compounds; a pair of characters is too short."""
    return {word for word in set(found) if is_compound(word)}


def _count(session: Session, collection: int, words: Counter[str]) -> None:
    """Add to the numbers of images of a collection that have each word."""
    if not words:
        return
    rows: list[dict[str, Any]] = [
        {"collection_id": collection, "word": word, "images": count} for word, count in sorted(words.items())
    ]
    insert = insert_sqlite if _is_sqlite(session) else insert_postgresql
    statement = insert(VocabularyRow)
    session.connection().execute(
        statement.on_conflict_do_update(
            index_elements=["collection_id", "word"],
            set_={"images": VocabularyRow.images + statement.excluded.images},
        ),
        rows,
    )


def _tsvector(found: Sequence[str]) -> str:
    """Return words with their places, as PostgreSQL writes a tsvector; they have letters and digits alone."""
    places: dict[str, list[int]] = {}
    for place, word in enumerate(found, 1):
        places.setdefault(word, []).append(place)
    return " ".join(f"'{word}':{','.join(map(str, own))}" for word, own in places.items())


_TAKE_IN_SQLITE: Final = text("INSERT INTO image_words (rowid, words) VALUES (:key, :words)")
_TAKE_IN_POSTGRESQL: Final = text(
    "INSERT INTO image_words (image_id, words, runs) VALUES (:key, CAST(:words AS tsvector), :runs)"
)
_HELD_SQLITE: Final = text(
    "SELECT images.id, images.collection_id, image_words.words FROM image_words "
    "JOIN images ON images.id = image_words.rowid WHERE image_words.rowid IN :keys"
).bindparams(bindparam("keys", expanding=True))
_HELD_POSTGRESQL: Final = text(
    "SELECT images.id, images.collection_id, array_to_string(tsvector_to_array(image_words.words), ' ') "
    "FROM image_words JOIN images ON images.id = image_words.image_id WHERE image_words.image_id IN :keys"
).bindparams(bindparam("keys", expanding=True))
# By its key: a collection's vocabulary is far larger than that of some of its images.
_FORGET_WORD: Final = text(
    "DELETE FROM vocabulary WHERE collection_id = :collection AND word = :word AND images <= 0"
)
_FORGET_SQLITE: Final = text("DELETE FROM image_words WHERE rowid IN :keys").bindparams(
    bindparam("keys", expanding=True)
)
_FORGET_POSTGRESQL: Final = text("DELETE FROM image_words WHERE image_id IN :keys").bindparams(
    bindparam("keys", expanding=True)
)
