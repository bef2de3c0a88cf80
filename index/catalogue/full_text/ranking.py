"""Ranks of images by words."""

import json
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
from sqlalchemy import bindparam, or_, select, text
from sqlalchemy.orm import Session

from index.catalogue.full_text.query import QueryWord, WordQuery, parse_words
from index.catalogue.full_text.tokenizer import pairs
from index.catalogue.tables import TextRow, VocabularyRow
from index.vectors.protocol import Keys

# Weights of a word as it is, of its singular or plural, and of a compound. How often it occurs, and in how
# long a text, adds up to `_FREQUENCY_WEIGHT`, so that one is never passed by the next.
_EXACT_WEIGHT: Final = 1.0
_INFLECTION_WEIGHT: Final = 0.7
_COMPOUND_WEIGHT: Final = 0.4
_FREQUENCY_WEIGHT: Final = 0.25
# Compounds of a word that are looked up, those of the most images.
_MAX_COMPOUNDS: Final = 256
# Pairs of a run that PostgreSQL looks up; the run is then looked for in the image's runs.
_MAX_PAIRS: Final = 32


class _Lookup(NamedTuple):
    """One look-up of a query's word: any of `terms`, or the pairs of a run, one behind the other.

    Attributes:
        place: Of the word in the query.
        weight: Of an image that is found.
        terms: Folded words, or one run.
        unspaced: Whether it is a run.
    """

    place: int
    weight: float
    terms: tuple[str, ...]
    unspaced: bool


def matching(
    session: Session, collection_id: int, words: str, limit: int, allowed: Keys | None = None
) -> Keys:
    """Return the keys of the images whose texts or report have any of the words, best first.

    A word of a query is the same in a text up to case, accents and compatibility forms; a run of a script
    without spaces is found inside others. Images with its singular or plural follow, then those with a
    compound of it. Images with more of the words, and with rarer ones, come first, weighed by the logarithm
    of how few of the collection's images have them, as in BM25; equals are in order of key. Both databases
    find the same images. How often a word occurs in how long a text counts by BM25 on SQLite and by
    PostgreSQL's own rank there.

    Args:
        session: A read of the catalogue.
        collection_id: Key of the collection.
        words: Words as typed, without query syntax.
        limit: Maximum number of keys.
        allowed: Only these keys, in rising order; None for all.
    """
    query = parse_words(words)
    if not query.words or limit < 1 or (allowed is not None and not len(allowed)):
        return np.empty(0, dtype=np.int64)
    lookups = list(_lookups(session, collection_id, query))
    values: dict[str, object] = {"collection": collection_id}
    if session.get_bind().dialect.name == "sqlite":
        values |= {"lookups": json.dumps([(one.place, one.weight, _fts5(one)) for one in lookups])}
        values |= {"most": limit if allowed is None else -1}
        found = session.execute(_SQLITE, values)
    else:
        values |= {
            "places": [one.place for one in lookups],
            "weights": [one.weight for one in lookups],
            "queries": [_tsquery(one) for one in lookups],
            "ranked": [_tsquery(one, ranked=True) for one in lookups],
            "runs": [one.terms[0] if one.unspaced and len(one.terms[0]) > 2 else "" for one in lookups],
            "most": limit if allowed is None else None,
        }
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
    asked = parse_words(words)
    query = (
        select(TextRow.image_id, TextRow.id, TextRow.text)
        .where(TextRow.image_id.in_(images.tolist()))
        .order_by(TextRow.image_id, TextRow.position)
    )
    found: dict[int, list[int]] = {}
    for image, key, written in session.execute(query):
        if asked.matches(written):
            found.setdefault(image, []).append(key)
    return np.array([key for image in images.tolist() for key in found.get(image, [])], dtype=np.int64)


def _lookups(session: Session, collection_id: int, query: WordQuery) -> Iterator[_Lookup]:
    compounds = _compounds(session, collection_id, query.words)
    for place, word in enumerate(query.words):
        yield _Lookup(place, _EXACT_WEIGHT, (word.text,), word.unspaced)
        if word.inflections:
            yield _Lookup(place, _INFLECTION_WEIGHT, tuple(sorted(word.inflections)), unspaced=False)
        if own := compounds.get(word.text):
            yield _Lookup(place, _COMPOUND_WEIGHT, tuple(own), unspaced=False)


def _compounds(session: Session, collection_id: int, words: Iterable[QueryWord]) -> dict[str, list[str]]:
    """Return the compounds of each word that most images of the collection have."""
    asked = [word for word in words if word.stems]
    if not asked:
        return {}
    # A stem has letters alone, none that LIKE would take for others.
    stems = [VocabularyRow.word.contains(stem) for word in asked for stem in word.stems]
    query = select(VocabularyRow.word).where(VocabularyRow.collection_id == collection_id, or_(*stems))
    ordered = query.order_by(VocabularyRow.images.desc(), VocabularyRow.word)
    known = session.execute(ordered).scalars().all()
    return {word.text: [one for one in known if word.is_part_of(one)][:_MAX_COMPOUNDS] for word in asked}


def _fts5(lookup: _Lookup) -> str:
    if not lookup.unspaced:
        return " OR ".join(f'"{term}"' for term in lookup.terms)
    (run,) = lookup.terms
    return f'"{" ".join(pairs(run))}"' if len(run) > 1 else f'"{run}" *'


def _tsquery(lookup: _Lookup, *, ranked: bool = False) -> str:
    """Return a look-up as PostgreSQL writes it; `ranked` leaves what its rank is to be computed by.

    PostgreSQL would rank the pairs of a run by how far they are from each other.
    """
    if not lookup.unspaced:
        return " | ".join(f"'{term}'" for term in lookup.terms)
    (run,) = lookup.terms
    if len(run) == 1:
        return f"'{run}':*"
    found = list(dict.fromkeys(pairs(run)))[: 1 if ranked else _MAX_PAIRS]
    return " & ".join(f"'{pair}'" for pair in found)


# Best of the look-ups of each word, and the sum over words with the weight of how few images have them.
_RANK: Final = f""",
best AS MATERIALIZED (
    SELECT place, image, max(weight + {_FREQUENCY_WEIGHT} * rank / (1 + rank)) AS quality
    FROM found GROUP BY place, image
),
rarity AS (
    SELECT place, ln(1 + (total - count(*) + 0.5) / (count(*) + 0.5)) AS weight
    FROM best, (SELECT count(*) AS total FROM images WHERE collection_id = :collection) AS size
    GROUP BY place, total
)
SELECT image FROM best JOIN rarity ON rarity.place = best.place
GROUP BY image ORDER BY sum(quality * weight) DESC, image LIMIT :most
"""
# SQLite's own order of the join would compare every image with every look-up.
_SQLITE: Final = text(
    """
WITH found AS MATERIALIZED (
    SELECT json_extract(asked.value, '$[0]') AS place, json_extract(asked.value, '$[1]') AS weight,
        image_words.rowid AS image, -bm25(image_words) AS rank
    FROM json_each(:lookups) AS asked
    CROSS JOIN image_words ON image_words MATCH json_extract(asked.value, '$[2]')
    CROSS JOIN images ON images.id = image_words.rowid
    WHERE images.collection_id = :collection
)"""
    + _RANK
).bindparams(bindparam("lookups"), bindparam("collection"), bindparam("most"))
# The 1 in ts_rank divides by 1 + log(length), so that long reports do not come first for their length. The 10
# brings it to the range of BM25.
_POSTGRESQL: Final = text(
    """
WITH asked AS MATERIALIZED (
    SELECT place, weight, CAST(query AS tsquery) AS query, CAST(ranked AS tsquery) AS ranked, run
    FROM unnest(CAST(:places AS int[]), CAST(:weights AS float8[]), CAST(:queries AS text[]),
        CAST(:ranked AS text[]), CAST(:runs AS text[])) AS list (place, weight, query, ranked, run)
),
found AS MATERIALIZED (
    SELECT place, weight, image_words.image_id AS image, 10 * ts_rank(image_words.words, ranked, 1) AS rank
    FROM asked
    JOIN image_words ON image_words.words @@ query AND (run = '' OR strpos(image_words.runs, run) > 0)
    JOIN images ON images.id = image_words.image_id AND images.collection_id = :collection
)"""
    + _RANK
).bindparams(*map(bindparam, ("places", "weights", "queries", "ranked", "runs", "collection", "most")))
