"""The full-text index of texts and reports, in SQLite (FTS5) or PostgreSQL, and the ranks of images by words.

On SQLite, `image_words` is an FTS5 table of the pieces of each image with spaces between them. On PostgreSQL
it holds them as a tsvector, with the runs in which a phrase of pairs is searched: a tsvector keeps no
more than 256 positions of a word, and none beyond the 16,383rd.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from sqlalchemy import TextClause, bindparam, or_, select, text
from sqlalchemy.dialects.postgresql import insert as insert_postgresql
from sqlalchemy.dialects.sqlite import insert as insert_sqlite
from sqlalchemy.orm import Session

from index.catalogue.schema import DerivedRow
from index.catalogue.tables import ImageRow, TextRow, VocabularyRow
from index.catalogue.words import (
    QueryWord,
    WordQuery,
    indexed_pieces,
    indexed_text,
    is_compound,
    pairs,
    parse_words,
    runs,
)
from index.vectors.protocol import Keys

# Images whose texts are in memory together.
_AT_ONCE: Final = 100
# Weights of a word as it is, of its singular or plural, and of a compound. How often it occurs, and in how
# long a text, adds up to `_FREQUENCY_WEIGHT`, so that one is never passed by the next.
_EXACT_WEIGHT: Final = 1.0
_INFLECTION_WEIGHT: Final = 0.7
_COMPOUND_WEIGHT: Final = 0.4
_FREQUENCY_WEIGHT: Final = 0.25
# A limit that no number of images reaches.
_ALL: Final = 2**62
# Compounds of a word that are looked up, those of the most images.
_MAX_COMPOUNDS: Final = 2048
# So many words are counted in each image by PostgreSQL: its rank compares every image with every word.
_MAX_RANKED: Final = 64
# Pairs of a run that PostgreSQL looks up; the run is then looked for in the image's runs.
_MAX_PAIRS: Final = 32


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
    def from_texts(cls, texts: Sequence[str], report: str | None) -> "IndexedWords":
        """Split the texts of an image and its report; of more than `MAX_CHARACTERS` their beginning."""
        folded = indexed_text("\n".join([*texts, report or ""]))
        pieces = indexed_pieces(folded)
        return cls(" ".join(pieces), _tsvector(pieces), runs(folded), frozenset(_compounds_among(pieces)))


def add_words(session: Session, collection_id: int, words: Mapping[int, IndexedWords]) -> None:
    """Take in the words of these images, by their keys, of which none have been, in the caller's transaction.

    The caller holds the lock of the collection, as every writer of its images does.
    """
    if not words:
        return
    sqlite, rows = _is_sqlite(session), []
    for key, own in words.items():
        if sqlite:
            rows.append({"key": key, "words": own.words})
        else:
            rows.append({"key": key, "words": own.vector, "runs": own.runs})
    session.execute(_TAKE_IN_SQLITE if sqlite else _TAKE_IN_POSTGRESQL, rows)
    counts: Counter[str] = Counter()
    for key in _counted(session, words):
        counts.update(words[key].compounds)
    if counts:
        _count(session, collection_id, counts)


def add_stored_words(session: Session, keys: Sequence[int]) -> None:
    """Take in the words of stored images, of which none have been, from their texts and reports."""
    for start in range(0, len(keys), _AT_ONCE):
        words: dict[int, dict[int, IndexedWords]] = {}
        for key, collection, texts, report in _written(session, keys[start : start + _AT_ONCE]):
            words.setdefault(collection, {})[key] = IndexedWords.from_texts(texts, report)
        for collection, own in words.items():
            add_words(session, collection, own)


def remove_words(session: Session, keys: Sequence[int]) -> None:
    """Forget the words of these images, which are still there, in the caller's transaction."""
    if not keys:
        return
    sqlite = _is_sqlite(session)
    counts: dict[int, Counter[str]] = {}
    stored = session.execute(_STORED_SQLITE if sqlite else _STORED_POSTGRESQL, {"keys": list(keys)})
    counted = set(_counted(session, keys))
    for key, collection, words in stored:
        if key in counted:
            counts.setdefault(collection, Counter()).update(_compounds_among(words.split(" ")))
    session.execute(_FORGET_SQLITE if sqlite else _FORGET_POSTGRESQL, {"keys": list(keys)})
    for collection, lost in counts.items():
        if lost:
            _count(session, collection, Counter({word: -count for word, count in lost.items()}))
            rows = [{"collection": collection, "word": word} for word in sorted(lost)]
            session.execute(_FORGET_WORD, rows)


def merge_words(session: Session) -> None:
    """Rewrite the index without words of images that are gone, in the caller's transaction.

    FTS5 keeps them in its segments until these are merged.
    """
    if _is_sqlite(session):
        session.execute(text("INSERT INTO image_words (image_words) VALUES ('optimize')"))


def _counted(session: Session, keys: Iterable[int]) -> Iterable[int]:
    """Return those of some images whose words the vocabulary counts: not yet all, while it is made again."""
    reached = session.execute(select(DerivedRow.reached)).scalar_one()
    return keys if reached is None else [key for key in keys if key <= reached]


def _is_sqlite(session: Session) -> bool:
    return session.get_bind().dialect.name == "sqlite"


def _written(session: Session, keys: Sequence[int]) -> Iterator[tuple[int, int, Sequence[str], str | None]]:
    """Give the key, the collection, the texts and the report of each image, in order of key."""
    written: dict[int, list[str]] = {}
    texts = select(TextRow.image_id, TextRow.text).where(TextRow.image_id.in_(keys))
    for image, written_text in session.execute(texts.order_by(TextRow.image_id, TextRow.position)):
        written.setdefault(image, []).append(written_text)
    images = select(ImageRow.id, ImageRow.collection_id, ImageRow.report).where(ImageRow.id.in_(keys))
    for key, collection, report in session.execute(images.order_by(ImageRow.id)):
        yield key, collection, written.pop(key, []), report


def _compounds_among(words: Iterable[str]) -> set[str]:
    """Return the words of an image that may be compounds; a pair of characters is too short."""
    return set(filter(is_compound, set(words)))


def _count(session: Session, collection: int, words: Counter[str]) -> None:
    """Add to the numbers of images of a collection that have each word."""
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


def _tsvector(pieces: Sequence[str]) -> str:
    """Return words, of letters and digits alone, with their positions as PostgreSQL writes a tsvector."""
    positions: dict[str, list[int]] = {}
    for position, word in enumerate(pieces, 1):
        positions.setdefault(word, []).append(position)
    written = []
    for word, offsets in positions.items():
        written.append(f"'{word}':{','.join(map(str, offsets))}")
    return " ".join(written)


_TAKE_IN_SQLITE: Final = text("INSERT INTO image_words (rowid, words) VALUES (:key, :words)")
_TAKE_IN_POSTGRESQL: Final = text(
    "INSERT INTO image_words (image_id, words, runs) VALUES (:key, CAST(:words AS tsvector), :runs)"
)
_STORED_SQLITE: Final = text(
    "SELECT images.id, images.collection_id, image_words.words FROM image_words "
    "JOIN images ON images.id = image_words.rowid WHERE image_words.rowid IN :keys"
).bindparams(bindparam("keys", expanding=True))
_STORED_POSTGRESQL: Final = text(
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


class _Lookup(NamedTuple):
    """One look-up of a query's word: images with any of `terms`.

    Attributes:
        word_index: Index of the word in the query.
        weight: Weight of a matching image.
        terms: Folded words, or one run.
        others: Words of which an image has none.
        unspaced: Whether it is a run.
    """

    word_index: int
    weight: float
    terms: tuple[str, ...]
    others: tuple[str, ...]
    unspaced: bool


def matching(
    session: Session, collection_id: int, words: str, limit: int, allowed: Keys | None = None
) -> Keys:
    """Return the keys of the images whose texts or report have any of the words, best first.

    A word of a query is the same in a text up to case, accents and compatibility forms; a run of a script
    without spaces is found inside others. Images with its singular or plural follow, then those with a
    compound of it. Images with more of the words, and with rarer ones, come first, weighed by the logarithm
    of how few of the collection's images have them, as in BM25; equals are in order of key. Words that more
    than half of the images have are left out where another word alone finds `limit` images. Both databases
    find the same images. How often a word occurs in how long a text counts by BM25 on SQLite and by
    PostgreSQL's own rank there.

    `allowed` are the only keys that may be found, rising; None allows all.
    """
    query = parse_words(words)
    if not query.words or limit < 1 or (allowed is not None and not len(allowed)):
        return np.empty(0, dtype=np.int64)
    statements = _SQLITE if session.get_bind().dialect.name == "sqlite" else _POSTGRESQL
    lookups = list(_lookups(session, collection_id, query))
    if allowed is None and len(query.words) > 1:
        lookups = _without_common(session, collection_id, lookups, limit, statements)
    most = limit if allowed is None else _ALL
    values = {"collection": collection_id, "most": most, "lookups": statements.lookups(lookups)}
    keys = np.fromiter(session.execute(statements.rank, values).scalars(), dtype=np.int64)
    if allowed is not None:
        keys = keys[np.isin(keys, allowed)]
    return keys[:limit]


def texts_with(session: Session, images: Keys, words: str) -> Keys:
    """Return the keys of those texts of images (N,) that have any of the words themselves.

    They come in the order of their images, and of their positions. Words match as in
    `matching`.
    """
    parsed = parse_words(words)
    query = (
        select(TextRow.image_id, TextRow.id, TextRow.text)
        .where(TextRow.image_id.in_(images.tolist()))
        .order_by(TextRow.image_id, TextRow.position)
    )
    matches: dict[int, list[int]] = {}
    for image, key, written in session.execute(query):
        if parsed.matches(written):
            matches.setdefault(image, []).append(key)
    return np.array([key for image in images.tolist() for key in matches.get(image, [])], dtype=np.int64)


def unknown_words(session: Session, collection_id: int, words: str) -> tuple[str, ...]:
    """Return the words, as typed and in order, that no text or report of a collection has in any form."""
    query = parse_words(words)
    if not query.words:
        return ()
    statements = _SQLITE if session.get_bind().dialect.name == "sqlite" else _POSTGRESQL
    lookups = statements.lookups(
        [
            _Lookup(index, _EXACT_WEIGHT, (word.text, *word.inflections), (), word.unspaced)
            for index, word in enumerate(query.words)
        ]
    )
    matched = set(
        session.execute(statements.matched, {"collection": collection_id, "lookups": lookups}).scalars()
    )
    missing = [word for index, word in enumerate(query.words) if index not in matched]
    compounds = _compounds(session, collection_id, missing)
    return tuple(word.typed for word in missing if not compounds.get(word.text))


def _lookups(session: Session, collection_id: int, query: WordQuery) -> Iterator[_Lookup]:
    """Give the look-ups of each word, none of which finds an image that another one of the word finds."""
    compounds = _compounds(session, collection_id, query.words)
    for index, word in enumerate(query.words):
        yield _Lookup(index, _EXACT_WEIGHT, (word.text,), (), word.unspaced)
        if word.inflections:
            yield _Lookup(index, _INFLECTION_WEIGHT, word.inflections, (word.text,), unspaced=False)
        if own := compounds.get(word.text):
            others = (word.text, *word.inflections)
            yield _Lookup(index, _COMPOUND_WEIGHT, tuple(own), others, unspaced=False)


def _without_common(
    session: Session, collection_id: int, lookups: list[_Lookup], limit: int, statements: "_Statements"
) -> list[_Lookup]:
    """Leave out words that most images have, which cost the most, if the others find enough."""
    total = session.execute(_TOTAL, {"collection": collection_id}).scalar_one()
    if total <= 2 * limit:
        return lookups
    exact = statements.lookups([one for one in lookups if one.weight == _EXACT_WEIGHT])
    values = {"collection": collection_id, "lookups": exact}
    counts = {row.word_index: row.images for row in session.execute(statements.counts, values)}
    common = {index for index, count in counts.items() if count > total / 2}
    enough = max((count for index, count in counts.items() if index not in common), default=0) >= limit
    return [one for one in lookups if one.word_index not in common] if enough else lookups


def _compounds(session: Session, collection_id: int, words: Iterable[QueryWord]) -> dict[str, list[str]]:
    """Return the compounds of each word that most images of the collection have."""
    compoundable = [word for word in words if word.stems or word.beginnings]
    if not compoundable:
        return {}
    # A stem has letters alone, none that LIKE would take for others.
    parts = [VocabularyRow.word.contains(stem) for word in compoundable for stem in word.stems]
    for beginning in dict.fromkeys(one for word in compoundable for one in word.beginnings):
        # Digits come before all letters, and are all that may follow letters of ASCII.
        after = beginning + (":" if beginning.isascii() else "\U0010ffff")
        parts.append((VocabularyRow.word >= beginning) & (VocabularyRow.word < after))
    query = select(VocabularyRow.word).where(VocabularyRow.collection_id == collection_id, or_(*parts))
    ordered = query.order_by(VocabularyRow.images.desc(), VocabularyRow.word)
    candidates = session.execute(ordered).scalars().all()
    return {
        word.text: [one for one in candidates if word.is_part_of(one)][:_MAX_COMPOUNDS]
        for word in compoundable
    }


def _sqlite_lookups(lookups: Iterable[_Lookup]) -> str:
    return json.dumps([(one.word_index, one.weight, _fts5(one)) for one in lookups])


def _fts5(lookup: _Lookup) -> str:
    """Return a look-up as FTS5 writes it; words have letters, digits and marks alone."""
    if lookup.unspaced:
        (run,) = lookup.terms
        return f'"{" ".join(pairs(run))}"' if len(run) > 1 else f'"{run}" *'
    terms, others = (" OR ".join(f'"{term}"' for term in some) for some in (lookup.terms, lookup.others))
    return f"({terms}) NOT ({others})" if others else terms


def _postgresql_lookups(lookups: Iterable[_Lookup]) -> str:
    return json.dumps(
        [
            {
                "word_index": one.word_index,
                "weight": one.weight,
                "query": _tsquery(one),
                "ranked": _ranked(one),
                "run": one.terms[0] if one.unspaced and len(one.terms[0]) > 2 else "",
            }
            for one in lookups
        ]
    )


def _tsquery(lookup: _Lookup) -> str:
    """Return a look-up as PostgreSQL writes it, for a run longer than a pair that of some of its pairs."""
    if lookup.unspaced:
        (run,) = lookup.terms
        run_pairs = list(dict.fromkeys(pairs(run)))[:_MAX_PAIRS]
        return " & ".join(f"'{pair}'" for pair in run_pairs) if run_pairs else f"'{run}':*"
    terms, others = (" | ".join(f"'{term}'" for term in some) for some in (lookup.terms, lookup.others))
    return f"({terms}) & !({others})" if others else terms


def _ranked(lookup: _Lookup) -> str:
    """Return what an image's rank is computed by: one pair of a run, as their distances say nothing."""
    if lookup.unspaced and len(lookup.terms[0]) > 1:
        return f"'{lookup.terms[0][:2]}'"
    return _tsquery(lookup._replace(terms=lookup.terms[:_MAX_RANKED], others=()))


class _Statements(NamedTuple):
    """Statements of a database.

    Attributes:
        rank: Selects the keys of matching images, best first.
        counts: Counts the matching images of each word.
        matched: Selects the words that match any image.
        lookups: Writes look-ups as their parameter.
    """

    rank: TextClause
    counts: TextClause
    matched: TextClause
    lookups: Callable[[Iterable[_Lookup]], str]


_TOTAL: Final = text("SELECT count(*) FROM images WHERE collection_id = :collection")
_COUNTS: Final = "SELECT word_index, count(*) AS images FROM {joined} GROUP BY word_index"
# The sum over the words that an image has, each with the weight of how few images have it.
_RANK: Final = """, hits AS MATERIALIZED (
    SELECT word_index, {key} AS image, weight + {share} * (1 - 1 / (1 + {rank})) AS quality FROM {joined}
),
rarity AS (
    SELECT word_index, ln(1 + (total - count(*) + 0.5) / (count(*) + 0.5)) AS weight
    FROM hits, (SELECT count(*) AS total FROM images WHERE collection_id = :collection) AS size
    GROUP BY word_index, total
)
SELECT image FROM hits JOIN rarity ON rarity.word_index = hits.word_index
GROUP BY image ORDER BY sum(quality * rarity.weight) DESC, image LIMIT :most
"""
_LOOKED_UP_SQLITE: Final = """WITH looked_up AS MATERIALIZED (
    SELECT json_extract(value, '$[0]') AS word_index, json_extract(value, '$[1]') AS weight,
        json_extract(value, '$[2]') AS query
    FROM json_each(:lookups)
)"""
# In SQLite's own order of the join, every image would be compared with every look-up.
_MATCHED_SQLITE: Final = "image_words MATCH query"
_JOIN_SQLITE: Final = (
    "CROSS JOIN images ON images.id = image_words.rowid AND images.collection_id = :collection"
)
_LOOKED_UP_POSTGRESQL: Final = """WITH looked_up AS MATERIALIZED (
    SELECT word_index, weight, CAST(query AS tsquery) AS query, CAST(ranked AS tsquery) AS ranked, run
    FROM jsonb_to_recordset(CAST(:lookups AS jsonb))
    AS list (word_index int, weight float8, query text, ranked text, run text)
)"""
_MATCHED_POSTGRESQL: Final = "image_words.words @@ query AND (run = '' OR strpos(image_words.runs, run) > 0)"
_JOIN_POSTGRESQL: Final = (
    "JOIN images ON images.id = image_words.image_id AND images.collection_id = :collection"
)


def _statements(
    lookup_table: str,
    matched: str,
    join: str,
    key: str,
    rank: str,
    lookups: Callable[[Iterable[_Lookup]], str],
) -> _Statements:
    joined = f"looked_up CROSS JOIN image_words {join} WHERE {matched}"
    matched_words = (
        f"SELECT word_index FROM looked_up WHERE EXISTS (SELECT 1 FROM image_words {join} WHERE {matched})"
    )
    ranked = _RANK.format(joined=joined, key=key, rank=rank, share=_FREQUENCY_WEIGHT)
    counts = _COUNTS.format(joined=joined)
    return _Statements(
        text(lookup_table + ranked),
        text(f"{lookup_table} {counts}"),
        text(f"{lookup_table} {matched_words}"),
        lookups,
    )


_SQLITE: Final = _statements(
    _LOOKED_UP_SQLITE,
    _MATCHED_SQLITE,
    _JOIN_SQLITE,
    "image_words.rowid",
    "-bm25(image_words)",
    _sqlite_lookups,
)
# The 1 in ts_rank divides by 1 + log(length), so that long reports do not come first for their length. The 10
# brings it to the range of BM25.
_POSTGRESQL: Final = _statements(
    _LOOKED_UP_POSTGRESQL,
    _MATCHED_POSTGRESQL,
    _JOIN_POSTGRESQL,
    "image_words.image_id",
    "10 * ts_rank(image_words.words, ranked, 1)",
    _postgresql_lookups,
)
