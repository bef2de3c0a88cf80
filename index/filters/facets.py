"""Facets of a collection: the values of its fields, and a few of its images.

Fields in memory are counted there, of all images or of those that pass a filter; others by the database.
"""

import threading
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from sqlalchemy import ColumnElement, Select, func, or_, select
from sqlalchemy.orm import Session

from index.catalogue import Catalogue, Reading
from index.catalogue.collections import require_collection
from index.catalogue.storable import storable_text
from index.catalogue.tables import AttributeRow, ImageRow, TextRow
from index.errors import QueryError
from index.filters.column_cache import CacheKey, contains_sorted
from index.filters.columns import TEXT_COLUMNS
from index.filters.dates import date_text, parse_date
from index.filters.field_columns import FieldColumns
from index.filters.findings import FindingCounts, count_findings
from index.filters.grammar import FieldKind, Filter, unknown_field
from index.filters.passing_keys import PassingKeys
from index.filters.sql import known_fields
from index.vectors.protocol import Keys

MAX_VALUES: Final = 30
MAX_EXAMPLES: Final = 8
_ONE_EACH: Final = frozenset({"id", "group"})


@dataclass(frozen=True, slots=True)
class FacetValue:
    """A value of a field, and how many images have it."""

    value: str | float | bool
    count: int


@dataclass(frozen=True, slots=True)
class Facet:
    """Values of a field.

    Attributes:
        name: The field.
        kinds: Kinds of its values; `date` alone where every value is a date.
        values: The most frequent texts and booleans, most frequent first.
        distinct: Number of different texts and booleans.
        minimum: The smallest number or the earliest date, in ISO 8601; None without either.
        maximum: The largest number or the latest date.
    """

    name: str
    kinds: tuple[FieldKind, ...]
    values: tuple[FacetValue, ...]
    distinct: int
    minimum: float | str | None
    maximum: float | str | None


@dataclass(frozen=True, slots=True)
class Example:
    """An image of the collection, and the shortest of its texts; an empty text when it has none."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Overview:
    """Facets, counts of findings and examples of a collection."""

    facets: tuple[Facet, ...]
    findings: tuple[FindingCounts, ...]
    examples: tuple[Example, ...]


@dataclass(frozen=True, slots=True)
class FilteredFacets:
    """Number of the images that pass a filter, the values of their fields, and their findings."""

    count: int
    facets: tuple[Facet, ...]
    findings: tuple[FindingCounts, ...] = ()


class Overviews:
    """Makes overviews, and keeps the latest of each collection until it changes; threads may share it.

    Args:
        catalogue: Catalogue to read.
        fields: Fields in memory.
        passing: Keys that pass filters.
    """

    def __init__(self, catalogue: Catalogue, fields: FieldColumns, passing: PassingKeys) -> None:
        self._catalogue = catalogue
        self._fields = fields
        self._passing = passing
        self._lock = threading.Lock()
        self._made: dict[int, tuple[int, Overview]] = {}

    def of(self, collection: str) -> Overview:
        """Return the overview of a collection.

        Raises:
            UnknownCollectionError: No collection has this name.
        """
        with self._catalogue.reading() as reading:
            row = require_collection(reading.session, collection)
            with self._lock:
                made = self._made.get(row.id)
            if made is not None and made[0] == row.sequence:
                return made[1]
            counted = FacetCounts(reading, row.id, row.sequence, self._fields)
            overview = Overview(counted.every(), counted.findings(), examples(reading.session, row.id))
            with self._lock:
                self._made[row.id] = (row.sequence, overview)
            return overview

    def facets(
        self, collection: str, filter: Filter | None, field: str | None, containing: str
    ) -> FilteredFacets:
        """Count the values of fields among the images that pass a filter.

        Args:
            collection: Name of the collection.
            filter: Only images that pass it; None for all.
            field: Only this field; None: all but those that have one value for each image.
            containing: Only texts of `field` that contain this, in whatever case.

        Raises:
            UnknownCollectionError: No collection has this name.
            FilterError: The filter does not fit the collection.
            QueryError: The collection has no such field, or a text is given and no field.
        """
        if containing and field is None:
            raise QueryError(
                "containing goes with field: name the field whose values are looked for.", field="containing"
            )
        with self._catalogue.reading() as reading:
            row = require_collection(reading.session, collection)
            passing = None
            if filter is not None:
                place = CacheKey(row.id, "images", filter.text)
                passing = self._passing.get(reading, place, row.sequence, filter)
            counted = FacetCounts(reading, row.id, row.sequence, self._fields, passing)
            if field is None:
                return FilteredFacets(counted.images(), counted.every(), counted.findings())
            known = known_fields(reading.session, row.id)
            if field not in known:
                raise QueryError(unknown_field(field, sorted(known), "to count"), field="field")
            return FilteredFacets(counted.images(), (counted.of(field, known[field], containing),))

    def keep(self, collections: Collection[int]) -> None:
        """Forget the overviews of all other collections."""
        with self._lock:
            self._made = {key: made for key, made in self._made.items() if key in collections}


@dataclass(frozen=True, slots=True)
class FacetCounts:
    """Counts the values of fields.

    A field that is not in memory, of more different texts than fit there, is counted by the database: under
    a filter, of its most frequent values those are counted again that images which pass have.

    Attributes:
        reading: Read transaction of the catalogue at `sequence`.
        collection_id: Key of the collection.
        sequence: The collection's sequence number.
        fields: Fields in memory.
        passing: Keys of the images that are counted, rising; None for all.
    """

    reading: Reading
    collection_id: int
    sequence: int
    fields: FieldColumns
    passing: Keys | None = None

    def images(self) -> int:
        """Return the number of images that are counted."""
        if self.passing is not None:
            return len(self.passing)
        return len(self.fields.every(self.reading, self.collection_id, self.sequence, "images"))

    def every(self) -> tuple[Facet, ...]:
        """Count the values of every field, except those that have one for each image, by name."""
        known = sorted(known_fields(self.reading.session, self.collection_id).items())
        return tuple(self.of(name, kinds) for name, kinds in known if name not in _ONE_EACH)

    def findings(self) -> tuple[FindingCounts, ...]:
        """Count the images by what they say of findings, those of most images first."""
        return count_findings(self.reading, self.collection_id, self.sequence, self.fields, self.passing)

    def of(self, name: str, kinds: frozenset[FieldKind], containing: str = "") -> Facet:
        """Count the values of a field; of its texts those that contain something, in whatever case."""
        values: list[FacetValue] = []
        facet = Facet(name, tuple(sorted(kinds)), (), 0, None, None)
        if "text" in kinds:
            texts, different = self._texts(name, containing)
            values += texts
            facet = replace(facet, distinct=different)
            if kinds == {"text"}:
                facet = self._dated(facet, texts)
        if "boolean" in kinds:
            booleans = self._booleans(name)
            values += booleans
            facet = replace(facet, distinct=facet.distinct + len(booleans))
        if "number" in kinds:
            low, high = self._range(name)
            facet = replace(facet, minimum=low, maximum=high)
        values.sort(key=lambda value: (-value.count, str(value.value)))
        return replace(facet, values=tuple(values[:MAX_VALUES]))

    def _texts(self, name: str, containing: str) -> tuple[list[FacetValue], int]:
        """Return the most frequent texts of a field, and the number of different ones."""
        column = self.fields.column(self.reading, self.collection_id, self.sequence, name, "text")
        if column is None:
            return self._texts_by_database(name, containing)
        assert column.texts is not None
        places, counts = column.counts(self.passing)
        found = [
            FacetValue(column.texts[int(place)], count)
            for place, count in zip(places.tolist(), counts.tolist(), strict=True)
        ]
        wanted = containing.casefold()
        found = [value for value in found if wanted in str(value.value).casefold()]
        distinct = len(found)
        found.sort(key=lambda value: (-value.count, str(value.value)))
        return found[:MAX_VALUES], distinct

    def _texts_by_database(self, name: str, containing: str) -> tuple[list[FacetValue], int]:
        if not storable_text(containing):
            return [], 0
        session, column = self.reading.session, _text_column(name)
        here = _text_rows(self.collection_id, name)
        if containing:
            here = (*here, _contains(column, containing))
        counted = select(column.label("value"), func.count().label("images")).where(*here).group_by(column)
        found = _most_frequent(session, counted)
        distinct = session.execute(select(func.count()).select_from(counted.subquery())).scalar_one()
        if self.passing is not None:
            found = self._passing_of(name, [value for value, _ in found])
        return [FacetValue(value, count) for value, count in found], distinct

    def _passing_of(self, name: str, texts: Sequence[str]) -> list[tuple[str, int]]:
        """Return which of some texts images that pass have, and how many of them."""
        assert self.passing is not None
        column = _text_column(name)
        key = ImageRow.id if name in TEXT_COLUMNS else AttributeRow.image_id
        found = []
        for value in texts:
            query = select(key).where(*_text_rows(self.collection_id, name), column == value)
            keys = np.fromiter(self.reading.session.execute(query).scalars(), dtype=np.int64)
            count = int(np.count_nonzero(contains_sorted(self.passing, keys)))
            if count:
                found.append((value, count))
        return found

    def _dated(self, facet: Facet, texts: Sequence[FacetValue]) -> Facet:
        """Return a facet of texts as one of dates, if that is what all of them are."""
        if facet.name in TEXT_COLUMNS or not texts:
            return facet
        if any(parse_date(str(value.value)) is None for value in texts):
            return facet
        dates = self.fields.column(self.reading, self.collection_id, self.sequence, facet.name, "date")
        if dates is None:
            return facet
        query = select(func.count()).where(*_text_rows(self.collection_id, facet.name))
        if len(dates.images) != self.reading.session.execute(query).scalar_one():
            return facet
        begin, _ = dates.counts(self.passing)
        low, high = (date_text(float(begin[0])), date_text(float(begin[-1]))) if len(begin) else (None, None)
        return replace(facet, kinds=("date",), minimum=low, maximum=high)

    def _booleans(self, name: str) -> list[FacetValue]:
        column = self.fields.column(self.reading, self.collection_id, self.sequence, name, "boolean")
        if column is not None:
            values, counts = column.counts(self.passing)
            pairs = zip(values.tolist(), counts.tolist(), strict=True)
            return [FacetValue(bool(value), count) for value, count in pairs]
        found = _most_frequent(self.reading.session, _number_values(self.collection_id, name, "boolean"))
        return [FacetValue(bool(value), count) for value, count in found]

    def _range(self, name: str) -> tuple[float | None, float | None]:
        column = self.fields.column(self.reading, self.collection_id, self.sequence, name, "number")
        if column is None:
            return _range(self.reading.session, self.collection_id, name)
        values, _ = column.counts(self.passing)
        return (float(values[0]), float(values[-1])) if len(values) else (None, None)


def examples(session: Session, collection_id: int) -> tuple[Example, ...]:
    """Take images from all over the collection: those with a text, or any when none has one."""
    with_text = select(TextRow.image_id).where(TextRow.image_id == ImageRow.id).exists()
    keys = dict.fromkeys(_spread(session, collection_id, with_text))
    keys = keys or dict.fromkeys(_spread(session, collection_id))
    found: dict[str, Example] = {}
    for key, name in keys:
        example = Example(name, _shortest_text(session, key))
        found.setdefault(example.text or name, example)
    return tuple(found.values())


def _text_column(name: str) -> Any:
    return TEXT_COLUMNS.get(name, AttributeRow.text_value)


def _text_rows(collection_id: int, name: str) -> tuple[ColumnElement[bool], ...]:
    if name in TEXT_COLUMNS:
        return ImageRow.collection_id == collection_id, TEXT_COLUMNS[name].is_not(None)
    return (*_of_field(collection_id, name), AttributeRow.text_value.is_not(None))


def _contains(column: Any, text: str) -> ColumnElement[bool]:
    """Return whether a text contains another as it is, or in lower case, capitals or a capital at its head.

    Databases compare only letters of ASCII without regard to case.
    """
    forms = dict.fromkeys((text, text.lower(), text.upper(), text.title()))
    return or_(*(column.icontains(form, autoescape=True) for form in forms))


def _number_values(collection_id: int, name: str, kind: FieldKind) -> Select[Any, int]:
    return (
        select(AttributeRow.number_value.label("value"), func.count().label("images"))
        .where(*_of_field(collection_id, name), AttributeRow.kind == kind)
        .group_by(AttributeRow.number_value)
    )


def _most_frequent(session: Session, query: Select[Any, int]) -> list[tuple[Any, int]]:
    counted = query.subquery()
    ordered = select(counted.c.value, counted.c.images).order_by(counted.c.images.desc(), counted.c.value)
    return [(value, count) for value, count in session.execute(ordered.limit(MAX_VALUES))]


def _range(session: Session, collection_id: int, name: str) -> tuple[float | None, float | None]:
    query = select(func.min(AttributeRow.number_value), func.max(AttributeRow.number_value))
    low, high = session.execute(
        query.where(*_of_field(collection_id, name), AttributeRow.kind == "number")
    ).one()
    return low, high


def _of_field(collection_id: int, name: str) -> tuple[ColumnElement[bool], ColumnElement[bool]]:
    return AttributeRow.collection_id == collection_id, AttributeRow.name == name


def _spread(
    session: Session, collection_id: int, *conditions: ColumnElement[bool]
) -> Iterator[tuple[int, str]]:
    """Walk over the images at evenly spaced keys, or the next ones after them."""
    here = ImageRow.collection_id == collection_id
    first, last = session.execute(
        select(func.min(ImageRow.id), func.max(ImageRow.id)).where(here, *conditions)
    ).one()
    if first is None:
        return
    step = (last - first) / (MAX_EXAMPLES - 1)
    query = select(ImageRow.id, ImageRow.external_id).where(here, *conditions).order_by(ImageRow.id).limit(1)
    for place in range(MAX_EXAMPLES):
        key, name = session.execute(query.where(ImageRow.id >= first + int(place * step))).one()
        yield key, name


def _shortest_text(session: Session, image_key: int) -> str:
    query = select(TextRow.text).where(TextRow.image_id == image_key)
    shortest = query.order_by(func.length(TextRow.text), TextRow.position).limit(1)
    return session.execute(shortest).scalar_one_or_none() or ""
