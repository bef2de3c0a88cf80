"""The words of texts and reports: a full-text index of SQLite (FTS5) or PostgreSQL, and ranks by it."""

import re
import unicodedata
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import bindparam, select, text
from sqlalchemy.orm import Session

from index.catalogue.tables import TextRow
from index.vectors.protocol import Keys

# Letters and digits of any script: what the tokenizer of SQLite's index takes for words.
_WORD: Final = re.compile(r"[^\W_]+")
# Limit of different words in a query: each is looked up by itself.
MAX_WORDS: Final = 64
# PostgreSQL takes words of up to 2,047 bytes, of which a letter may need four.
_MAX_WORD_LENGTH: Final = 500
# Limit of an image's text: a tsvector holds 1,048,575 bytes, and a character may take four of them.
MAX_CHARACTERS: Final = 200_000


def matching(
    session: Session, collection_id: int, words: str, limit: int, allowed: Keys | None = None
) -> Keys:
    """Return the keys of the images whose texts or report have any of the words, best first.

    Images with more of the words, and with rarer ones, come first; equals are in order of key. SQLite ranks
    by BM25. PostgreSQL's own rank knows nothing of rarity: that of each word is weighed with the logarithm
    of how few of the collection's images have it, as in BM25. Only SQLite finds "cafe" in "café" and the
    reverse.

    Args:
        session: A read of the catalogue.
        collection_id: Key of the collection.
        words: Words as typed, without query syntax.
        limit: Maximum number of keys.
        allowed: Only these keys, in rising order; None for all.
    """
    asked = tokens(words)
    if not asked or limit < 1 or (allowed is not None and not len(allowed)):
        return np.empty(0, dtype=np.int64)
    values: dict[str, object] = {"collection": collection_id}
    if session.get_bind().dialect.name == "sqlite":
        values |= {"query": _fts5(asked), "most": limit if allowed is None else -1}
        found = session.execute(_SQLITE, values)
    else:
        values |= {"words": [_quoted(word) for word in asked], "most": limit if allowed is None else None}
        found = session.execute(_POSTGRESQL, values)
    keys = np.fromiter(found.scalars(), dtype=np.int64)
    if allowed is not None:
        keys = keys[np.isin(keys, allowed)]
    return keys[:limit]


def texts_with(session: Session, images: Keys, words: str) -> Keys:
    """Return the keys of those texts of images (N,) that have any of the words themselves.

    They come in the order of their images, and of their positions. Words are the same where `matching` takes
    them for the same.
    """
    sqlite = session.get_bind().dialect.name == "sqlite"
    asked = set(tokens(_without_accents(words) if sqlite else words))
    query = (
        select(TextRow.image_id, TextRow.id, TextRow.text)
        .where(TextRow.image_id.in_(images.tolist()))
        .order_by(TextRow.image_id, TextRow.position)
    )
    found: dict[int, list[int]] = {}
    for image, key, written in session.execute(query):
        if asked.intersection(_split(_without_accents(written) if sqlite else written)):
            found.setdefault(image, []).append(key)
    return np.array([key for image in images.tolist() for key in found.get(image, [])], dtype=np.int64)


def replace_words(session: Session, keys: Sequence[int]) -> None:
    """Take in the words of these images as their texts and reports are now, in the caller's transaction."""
    if keys:
        remove_words(session, keys)
        add_words(session, keys)


def add_words(session: Session, keys: Sequence[int]) -> None:
    """Take in the words of these images, of which none have been, in the caller's transaction.

    Of an image with more text than `MAX_CHARACTERS`, those at its beginning are taken in.
    """
    if not keys:
        return
    if session.get_bind().dialect.name == "sqlite":
        session.execute(_TAKE_IN_SQLITE, {"keys": list(keys)})
        return
    written = session.execute(_WRITTEN_POSTGRESQL, {"keys": list(keys)}).all()
    values = {"keys": [key for key, _ in written], "words": [tsvector(words) for _, words in written]}
    session.execute(_TAKE_IN_POSTGRESQL, values)


def remove_words(session: Session, keys: Sequence[int]) -> None:
    """Forget the words of these images, in the caller's transaction."""
    sqlite = session.get_bind().dialect.name == "sqlite"
    session.execute(_FORGET_SQLITE if sqlite else _FORGET_POSTGRESQL, {"keys": list(keys)})


def tokens(words: str) -> list[str]:
    """Split what a person typed into its different words, in lower case and in order."""
    return list(dict.fromkeys(_split(words)))


def tsvector(written: str) -> str:
    """Return the words of a text with their places, as PostgreSQL writes a tsvector.

    Of a text with more than `MAX_CHARACTERS` they are those at its beginning. PostgreSQL's own parser would
    take "a/b" for a file and "x.Y" for a host, and find neither word of them.
    """
    places: dict[str, list[int]] = {}
    for place, word in enumerate(_split(written[:MAX_CHARACTERS]), 1):
        places.setdefault(_quoted(word), []).append(place)
    return " ".join(f"{word}:{','.join(map(str, own))}" for word, own in places.items())


def fuse(rankings: Sequence[Keys], k0: int = 60) -> tuple[Keys, NDArray[np.float64]]:
    """Fuse rankings by the sum of 1 / (k0 + rank) over those that a key is in.

    Cormack, Clarke and Buettcher, "Reciprocal rank fusion outperforms Condorcet and individual rank learning
    methods", SIGIR 2009.

    Args:
        rankings: Distinct keys (N,) of each ranking, best first.
        k0: Rank constant; the larger, the less the first ranks dominate.

    Returns:
        The keys of all rankings and their sums, best first; equal sums are in order of key.
    """
    keys = np.concatenate([np.empty(0, dtype=np.int64), *rankings])
    fused, places = np.unique(keys, return_inverse=True)
    sums = np.zeros(len(fused), dtype=np.float64)
    ranks = np.concatenate([np.empty(0), *(np.arange(1.0, len(ranking) + 1) for ranking in rankings)])
    np.add.at(sums, places, 1 / (k0 + ranks))
    order = np.lexsort((fused, -sums))
    return fused[order], sums[order]


def _without_accents(words: str) -> str:
    """Leave out what the tokenizer of SQLite's index leaves out."""
    return "".join(sign for sign in unicodedata.normalize("NFD", words) if not unicodedata.combining(sign))


def _split(words: str) -> list[str]:
    """Return the words of a text in lower case, in order."""
    return _WORD.findall(unicodedata.normalize("NFC", words).lower())


def _fts5(asked: Sequence[str]) -> str:
    return " OR ".join(f'"{word}"' for word in asked)


def _quoted(word: str) -> str:
    """Return a word as PostgreSQL writes one; it has letters and digits alone."""
    return f"'{word[:_MAX_WORD_LENGTH]}'"


_SQLITE: Final = text(
    "SELECT image_words.rowid FROM image_words JOIN images ON images.id = image_words.rowid "
    "WHERE image_words MATCH :query AND images.collection_id = :collection "
    "ORDER BY bm25(image_words), image_words.rowid LIMIT :most"
).bindparams(bindparam("query"), bindparam("collection"), bindparam("most"))
# The 1 in ts_rank divides by 1 + log(length), so that long reports do not come first for their length.
_POSTGRESQL: Final = text(
    "WITH asked AS MATERIALIZED ("
    "SELECT place, CAST(word AS tsquery) AS one "
    "FROM unnest(CAST(:words AS text[])) WITH ORDINALITY AS list (word, place)), "
    "found AS MATERIALIZED ("
    "SELECT image_words.image_id, place, ts_rank(image_words.words, one, 1) AS rank "
    "FROM asked JOIN image_words ON image_words.words @@ one "
    "JOIN images ON images.id = image_words.image_id AND images.collection_id = :collection), "
    "rarity AS ("
    "SELECT place, ln(1 + (total - count(*) + 0.5) / (count(*) + 0.5)) AS weight FROM found, "
    "(SELECT count(*) AS total FROM images WHERE collection_id = :collection) AS size GROUP BY place, total) "
    "SELECT image_id FROM found JOIN rarity USING (place) "
    "GROUP BY image_id ORDER BY sum(rank * weight) DESC, image_id LIMIT :most"
).bindparams(bindparam("words"), bindparam("collection"), bindparam("most"))
_TAKE_IN_SQLITE: Final = text(
    "INSERT INTO image_words (rowid, words) SELECT id, substr("
    "coalesce((SELECT group_concat(text, char(10)) FROM texts WHERE image_id = images.id), '') "
    f"|| char(10) || coalesce(report, ''), 1, {MAX_CHARACTERS}) FROM images WHERE id IN :keys"
).bindparams(bindparam("keys", expanding=True))
_WRITTEN_POSTGRESQL: Final = text(
    "SELECT id, coalesce("
    "(SELECT string_agg(text, chr(10) ORDER BY position) FROM texts WHERE image_id = images.id), '') "
    "|| chr(10) || coalesce(report, '') FROM images WHERE id IN :keys"
).bindparams(bindparam("keys", expanding=True))
_TAKE_IN_POSTGRESQL: Final = text(
    "INSERT INTO image_words (image_id, words) SELECT key, CAST(words AS tsvector) "
    "FROM unnest(CAST(:keys AS bigint[]), CAST(:words AS text[])) AS list (key, words)"
).bindparams(bindparam("keys"), bindparam("words"))
_FORGET_SQLITE: Final = text("DELETE FROM image_words WHERE rowid IN :keys").bindparams(
    bindparam("keys", expanding=True)
)
_FORGET_POSTGRESQL: Final = text("DELETE FROM image_words WHERE image_id IN :keys").bindparams(
    bindparam("keys", expanding=True)
)
