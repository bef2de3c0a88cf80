"""Counts of the texts of a field: from a column in memory, from one of hashes, or by the database."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Select, func, or_, select
from sqlalchemy.orm import Session

from index.catalogue.lookup import storable_text
from index.catalogue.tables import AttributeRow, ImageRow
from index.filters.column_cache import contains_sorted
from index.filters.columns import TEXT_COLUMNS, Column, Counts
from index.vectors.protocol import Keys

MAX_VALUES: Final = 30
# Of more texts with the same hash count, the first are found in the order of texts.
_MAX_LOOKED_UP: Final = 1000
_ROWS_AT_ONCE: Final = 10_000


class TextCounts(NamedTuple):
    """The most frequent texts of a field, and the number of different ones.

    Attributes:
        texts: Texts and how many images have each, most frequent first, equals in order of text.
        distinct: Number of different texts.
    """

    texts: list[tuple[str, int]]
    distinct: int


def count_column(column: Column, passing: Keys | None, containing: str) -> TextCounts:
    """Count the texts of a whole column.

    Args:
        column: The field in memory.
        passing: Keys of the images that are counted, rising; None for all.
        containing: Only texts that contain this, in whatever case.
    """
    assert column.texts is not None
    places, counts, _ = column.counts(passing)
    if containing:
        wanted = containing.casefold()
        kept = [wanted in column.texts[int(place)].casefold() for place in places]
        places, counts = places[kept], counts[kept]
    first = np.lexsort((places, -counts))[:MAX_VALUES]
    return TextCounts([(column.texts[int(places[at])], int(counts[at])) for at in first], len(places))


class HashedTexts:
    """Counts the texts of a field that is in memory by their hashes.

    Args:
        session: A read of the catalogue.
        collection_id: Key of the collection.
        field: Name of the field.
        column: Hashes of its texts.
        passing: Keys of the images that are counted, rising; None for all.
    """

    def __init__(
        self, session: Session, collection_id: int, field: str, column: Column, passing: Keys | None
    ) -> None:
        self._session = session
        self._collection_id = collection_id
        self._field = field
        self._counted: Counts = column.counts(passing)

    def most_frequent(self) -> TextCounts:
        """Count all texts."""
        hashes, counts, images = self._counted
        if len(hashes) <= MAX_VALUES:
            return TextCounts(self._named(hashes, counts, images), len(hashes))
        last = np.partition(counts, -MAX_VALUES)[-MAX_VALUES]
        more, tied = counts > last, counts == last
        found = self._named(hashes[more], counts[more], images[more])
        wanted = MAX_VALUES - len(found)
        if np.count_nonzero(tied) <= _MAX_LOOKED_UP:
            equals = self._named(hashes[tied], counts[tied], images[tied])
        else:
            equals = [(text, int(last)) for text in self._first(hashes[tied], wanted)]
        return TextCounts(found + equals[:wanted], len(hashes))

    def containing(self, text: str) -> TextCounts:
        """Count the texts that contain another, in whatever case."""
        if not storable_text(text):
            return TextCounts([], 0)
        column = text_column(self._field)
        query = self._texts().where(_contains(column, text)).execution_options(yield_per=_ROWS_AT_ONCE)
        found: list[tuple[str, int]] = []
        distinct = 0
        with self._session.execute(query) as result:
            for some in result.scalars().partitions():
                counted = [
                    (one, count) for one, count in zip(some, self._counts_of(some), strict=True) if count
                ]
                distinct += len(counted)
                found = _ordered([*found, *counted])[:MAX_VALUES]
        return TextCounts(found, distinct)

    def _texts(self) -> Select[Any]:
        return select(text_column(self._field)).where(*text_rows(self._collection_id, self._field)).distinct()

    def _counts_of(self, texts: Sequence[str]) -> list[int]:
        hashes = np.fromiter(map(hash, texts), dtype=np.int64, count=len(texts))
        held = contains_sorted(self._counted.values, hashes)
        places = np.searchsorted(self._counted.values, hashes[held])
        counts = np.zeros(len(texts), dtype=np.int64)
        counts[held] = self._counted.counts[places]
        return counts.tolist()

    def _named(
        self, hashes: NDArray[np.int64], counts: NDArray[np.int64], images: Keys
    ) -> list[tuple[str, int]]:
        """Return the texts of hashes, by an image that has each."""
        column = text_column(self._field)
        key = ImageRow.id if self._field in TEXT_COLUMNS else AttributeRow.image_id
        query = select(column).where(key.in_(images.tolist()), *text_rows(self._collection_id, self._field))
        count_of = dict(zip(hashes.tolist(), counts.tolist(), strict=True))
        texts = self._session.execute(query.distinct()).scalars()
        return _ordered([(text, count_of[hash(text)]) for text in texts if hash(text) in count_of])

    def _first(self, hashes: NDArray[np.int64], wanted: int) -> list[str]:
        """Return the first texts, in their order, that have one of many hashes, which rise."""
        column, found = text_column(self._field), list[str]()
        query = self._texts().order_by(column).limit(_ROWS_AT_ONCE)
        after: list[ColumnElement[bool]] = []
        while len(found) < wanted:
            some = self._session.execute(query.where(*after)).scalars().all()
            if not some:
                break
            held = contains_sorted(hashes, np.fromiter(map(hash, some), dtype=np.int64, count=len(some)))
            found += [text for text, is_held in zip(some, held, strict=True) if is_held]
            after = [column > some[-1]]
        return found[:wanted]


def count_by_database(
    session: Session, collection_id: int, field: str, passing: Keys | None, containing: str
) -> TextCounts:
    """Count the texts of a field that does not fit into memory.

    A filter counts only among the most frequent texts of all images: `passing` are the keys that pass it.
    """
    if not storable_text(containing):
        return TextCounts([], 0)
    column = text_column(field)
    here = text_rows(collection_id, field)
    if containing:
        here = (*here, _contains(column, containing))
    counted = select(column.label("value"), func.count().label("images")).where(*here).group_by(column)
    rows = counted.subquery()
    ordered = (
        select(rows.c.value, rows.c.images).order_by(rows.c.images.desc(), rows.c.value).limit(MAX_VALUES)
    )
    found = [(text, count) for text, count in session.execute(ordered)]
    distinct = session.execute(select(func.count()).select_from(rows)).scalar_one()
    if passing is not None:
        found = _passing_of(session, collection_id, field, [text for text, _ in found], passing)
    return TextCounts(found, distinct)


def _passing_of(
    session: Session, collection_id: int, field: str, texts: Sequence[str], passing: Keys
) -> list[tuple[str, int]]:
    """Return which of some texts images that pass have, and how many of them."""
    column = text_column(field)
    key = ImageRow.id if field in TEXT_COLUMNS else AttributeRow.image_id
    found = []
    for text in texts:
        query = select(key).where(*text_rows(collection_id, field), column == text)
        keys = np.fromiter(session.execute(query).scalars(), dtype=np.int64)
        if count := int(np.count_nonzero(contains_sorted(passing, keys))):
            found.append((text, count))
    return _ordered(found)


def text_column(field: str) -> Any:
    """Return the column of the catalogue that holds a field's texts."""
    return TEXT_COLUMNS.get(field, AttributeRow.text_value)


def text_rows(collection_id: int, field: str) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions of the rows that hold a field's texts."""
    if field in TEXT_COLUMNS:
        return ImageRow.collection_id == collection_id, TEXT_COLUMNS[field].is_not(None)
    here = AttributeRow.collection_id == collection_id, AttributeRow.name == field
    return (*here, AttributeRow.text_value.is_not(None))


def _contains(column: Any, text: str) -> ColumnElement[bool]:
    """Return whether a text contains another as it is, or in lower case, capitals or a capital at its head.

    Databases compare only letters of ASCII without regard to case.
    """
    forms = dict.fromkeys((text, text.lower(), text.upper(), text.title()))
    return or_(*(column.icontains(form, autoescape=True) for form in forms))


def _ordered(counted: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    return sorted(counted, key=lambda one: (-one[1], one[0]))
