"""Facets of a collection: the values of its fields, and a few of its images.

Fields are counted in memory, of all images or of those that pass a filter.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Select, func, or_, select
from sqlalchemy.orm import Session

from index.catalogue import Catalogue
from index.catalogue.collections import require_collection
from index.catalogue.lookup import storable_text
from index.catalogue.tables import AttributeRow, ImageRow, TextRow
from index.errors import QueryError
from index.filters.column_cache import CacheKey, CollectionCache, CollectionState, contains_sorted
from index.filters.columns import TEXT_COLUMNS, Column, Counts, known_fields, select_values
from index.filters.dates import date_text, parse_date
from index.filters.grammar import FINDING_FIELD, FieldKind, Filter, unknown_field
from index.filters.passing import FieldColumns
from index.vectors.protocol import Keys
from training.clinical.findings import STATES
from training.common.record import FLAG_FIELDS

MAX_EXAMPLES: Final = 8
_ONE_EACH: Final = frozenset({"id", "group"})
_CACHE_BYTES: Final = 16 * 1024**2
# Memory of a facet without its texts, of a value, and of an example or a count of a finding.
_FACET_BYTES, _VALUE_BYTES = 500, 150
MAX_VALUES: Final = 30
# If more texts have the same count, the first ones in alphabetical order are used.
_MAX_LOOKED_UP: Final = 1000
_ROWS_AT_ONCE: Final = 10_000


class TextCounts(NamedTuple):
    """The most frequent texts of a field, equals in order of text, and the number of different ones."""

    texts: list[tuple[str, int]]
    distinct: int


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
        date_shifted: Whether de-identification has shifted "date" in some records; None: unknown.
    """

    name: str
    kinds: tuple[FieldKind, ...]
    values: tuple[FacetValue, ...]
    distinct: int
    minimum: float | str | None
    maximum: float | str | None
    date_shifted: bool | None = False


class FindingCounts(NamedTuple):
    """How many images say of a finding that it is present, uncertain or absent."""

    finding: str
    present: int
    uncertain: int
    absent: int


@dataclass(frozen=True, slots=True)
class Example:
    """An image of the collection, and the shortest of its texts; an empty text when it has none."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class FilteredFacets:
    """Number of the images that pass a filter, the values of their fields, and their findings."""

    count: int
    facets: tuple[Facet, ...]
    findings: tuple[FindingCounts, ...] = ()


@dataclass(frozen=True, slots=True)
class Overview(FilteredFacets):
    """Number of images, facets, counts of findings and examples of a collection."""

    examples: tuple[Example, ...] = ()

    @property
    def nbytes(self) -> int:
        """Memory that it holds, nearly."""
        texts = [value.value for facet in self.facets for value in facet.values]
        texts += [text for one in self.examples for text in (one.id, one.text)]
        letters = sum(len(text) for text in texts if isinstance(text, str))
        values = _VALUE_BYTES * (len(texts) + len(self.findings))
        return letters + values + _FACET_BYTES * (1 + len(self.facets))


class Overviews:
    """Makes overviews, and keeps the latest of each collection until it changes; threads may share it."""

    def __init__(self, catalogue: Catalogue, fields: FieldColumns) -> None:
        self._catalogue = catalogue
        self._fields = fields
        self._kept: CollectionCache[Overview] = CollectionCache(_CACHE_BYTES)

    def current(self, state: CollectionState) -> Overview:
        """Return the overview of a collection, rebuilt from the fields in memory after writes."""

        def make() -> Overview:
            counted = FacetCounts(state, self._fields)
            every = self._fields.passing(state, None, "images")
            shown = examples(state.session, state.collection_id, every)
            return Overview(counted.images(), counted.every(), counted.findings(), shown)

        key = CacheKey(state.collection_id, "images", "")
        return self._kept.get(key, state.sequence, make)

    def facets(
        self,
        collection: str,
        filter: Filter | None,
        field: str | None,
        containing: str,
        among: Callable[[CollectionState], Keys] | None = None,
    ) -> FilteredFacets:
        """Count the values of fields among the images that pass a filter.

        Args:
            collection: Name of the collection.
            filter: Only images that pass it; None for all.
            field: Only this field; None: all but those that have one value for each image.
            containing: Only texts of `field` that contain this, case-insensitively.
            among: Looks up the keys of the images to count, instead of the filter.

        Raises:
            FilterError: The filter does not fit the collection.
            QueryError: The collection has no such field, or there is a text and no field.
        """
        if containing and field is None:
            raise QueryError(
                "containing goes with field: name the field whose values are looked for.", field="containing"
            )
        with self._catalogue.reading() as reading:
            row = require_collection(reading.session, collection)
            state, passing = CollectionState(reading, row.id, row.sequence), None
            if filter is None and among is None and not containing and field not in _ONE_EACH:
                overview = self.current(state)
                if field is None:
                    return overview
                if matching := tuple(facet for facet in overview.facets if facet.name == field):
                    return FilteredFacets(overview.count, matching)
            if among is not None:
                passing = np.sort(among(state))
            elif filter is not None:
                passing = self._fields.passing(state, filter, "images")
            counted = FacetCounts(state, self._fields, passing)
            if field is None:
                return FilteredFacets(counted.images(), counted.every(), counted.findings())
            fields = known_fields(reading.session, row.id)
            if field in FLAG_FIELDS:
                # No image needs to have it.
                fields[field] = frozenset({"boolean"})
            if field not in fields:
                raise QueryError(unknown_field(field, sorted(fields), "to count"), field="field")
            return FilteredFacets(counted.images(), (counted.facet(field, fields[field], containing),))

    def keep(self, collections: Collection[int]) -> None:
        """Forget the overviews of all other collections."""
        self._kept.keep(collections)


@dataclass(frozen=True, slots=True)
class FacetCounts:
    """Counts the values of fields.

    A field with more different texts than fit into memory is counted by their hashes. Flags and ranges of
    numbers that don't fit are counted by the database, for all images.
    """

    state: CollectionState
    fields: FieldColumns
    passing: Keys | None = None

    def images(self) -> int:
        """Return the number of images that are counted."""
        if self.passing is not None:
            return len(self.passing)
        return len(self.fields.passing(self.state, None, "images"))

    def every(self) -> tuple[Facet, ...]:
        """Count the values of every field, except those that have one for each image, by name."""
        fields = sorted(known_fields(self.state.session, self.state.collection_id).items())
        return tuple(self.facet(name, kinds) for name, kinds in fields if name not in _ONE_EACH)

    def findings(self) -> tuple[FindingCounts, ...]:
        """Count the images by what they say of findings, those of most images first."""
        column = self.fields.column(self.state, FINDING_FIELD, "text")
        if column is not None:
            assert column.texts is not None
            indices, images, _ = column.counts(self.passing)
            texts = (column.texts[int(index)] for index in indices)
            stated = dict(zip(texts, images.tolist(), strict=True))
        else:
            stated = dict(self._hashed(FINDING_FIELD).every())
        states: dict[str, dict[str, int]] = {}
        for statement, count in stated.items():
            name, _, its_state = statement.rpartition(": ")
            states.setdefault(name, dict.fromkeys(STATES, 0))[its_state] = count
        counts = [FindingCounts(name, **own) for name, own in states.items()]
        return tuple(
            sorted(counts, key=lambda one: (-(one.present + one.uncertain + one.absent), one.finding))
        )

    def facet(self, name: str, kinds: frozenset[FieldKind], containing: str = "") -> Facet:
        """Count the values of a field; of its texts those that contain a string, case-insensitively."""
        values: list[FacetValue] = []
        facet = Facet(name, tuple(sorted(kinds)), (), 0, None, None)
        if "text" in kinds:
            column = self.fields.column(self.state, name, "text")
            texts = self._texts(name, column, containing)
            values += [FacetValue(text, count) for text, count in texts.texts]
            facet = replace(facet, distinct=texts.distinct)
            if kinds == {"text"}:
                facet = self._dated(facet, column, texts)
        if "boolean" in kinds:
            booleans = self._booleans(name)
            if name in FLAG_FIELDS:
                # False of all others.
                without = self.images() - sum(value.count for value in booleans)
                booleans += [FacetValue(False, without)] if without > 0 else []
            values += booleans
            facet = replace(facet, distinct=facet.distinct + len(booleans))
        if "number" in kinds:
            low, high = self._range(name)
            facet = replace(facet, minimum=low, maximum=high)
        values.sort(key=lambda value: (-value.count, str(value.value)))
        shifted = self._shifted() if name == "date" else False
        return replace(facet, values=tuple(values[:MAX_VALUES]), date_shifted=shifted)

    def _texts(self, name: str, column: Column | None, containing: str) -> TextCounts:
        if column is None:
            hashed = self._hashed(name)
            return hashed.containing(containing) if containing else hashed.most_frequent()
        assert column.texts is not None
        indices, counts, _ = column.counts(self.passing)
        if containing:
            needle = containing.casefold()
            matching = [needle in column.texts[int(index)].casefold() for index in indices]
            indices, counts = indices[matching], counts[matching]
        first = np.lexsort((indices, -counts))[:MAX_VALUES]
        return TextCounts([(column.texts[int(indices[at])], int(counts[at])) for at in first], len(indices))

    def _hashed(self, name: str) -> "HashedTexts":
        return HashedTexts(self.state, name, self.fields.hashed(self.state, name), self.passing)

    def _dated(self, facet: Facet, column: Column | None, texts: TextCounts) -> Facet:
        """Return a facet of texts as one of dates, if that is what all of them are."""
        if facet.name in TEXT_COLUMNS or not texts.texts:
            return facet
        if any(parse_date(text) is None for text, _ in texts.texts):
            return facet
        dates = self.fields.column(self.state, facet.name, "date")
        every = self.fields.hashed(self.state, facet.name) if column is None else column
        if dates is None or len(dates) < len(every):
            return facet
        begins = dates.counts(self.passing).values
        low, high = (date_text(begins[0]), date_text(begins[-1])) if len(begins) else (None, None)
        return replace(facet, kinds=("date",), minimum=low, maximum=high)

    def _shifted(self) -> bool | None:
        counts = {value.value: value.count for value in self._booleans("date_shifted")}
        if counts.get(True):
            return True
        is_dicom = "sop" in known_fields(self.state.session, self.state.collection_id)
        return None if is_dicom and sum(counts.values()) < self.images() else False

    def _booleans(self, name: str) -> list[FacetValue]:
        column = self.fields.column(self.state, name, "boolean")
        if column is not None:
            values, counts, _ = column.counts(self.passing)
            pairs = zip(values.tolist(), counts.tolist(), strict=True)
            return [FacetValue(bool(value), count) for value, count in pairs]
        value = AttributeRow.number_value
        booleans = select_values(self.state.collection_id, name, "boolean")
        query = booleans.with_only_columns(value, func.count()).group_by(value)
        return [FacetValue(bool(value), count) for value, count in self.state.session.execute(query)]

    def _range(self, name: str) -> tuple[float | None, float | None]:
        column = None
        if self.passing is not None:
            column = self.fields.column(self.state, name, "number")
        if column is None:
            numbers = select_values(self.state.collection_id, name, "number")
            # One by one, each is the end of an index.
            low, high = (
                self.state.session.execute(numbers.with_only_columns(end(AttributeRow.number_value))).scalar()
                for end in (func.min, func.max)
            )
            return low, high
        values = column.counts(self.passing).values
        return (float(values[0]), float(values[-1])) if len(values) else (None, None)


def has_texts(session: Session, collection_id: int) -> bool:
    """Return whether any image of a collection has a text."""
    ends = select(func.min(ImageRow.id), func.max(ImageRow.id)).where(ImageRow.collection_id == collection_id)
    first, last = session.execute(ends).one()
    return first is not None and bool(_with_text(session, collection_id, (first, last)))


def examples(session: Session, collection_id: int, images: Keys) -> tuple[Example, ...]:
    """Take images from all over the collection: those with a text, or any when none has one."""
    if not len(images):
        return ()
    spread = np.linspace(images[0], images[-1], MAX_EXAMPLES).astype(np.int64)
    keys = _with_text(session, collection_id, spread.tolist())
    keys = keys or images[np.searchsorted(images, spread)].tolist()
    shown: dict[str, Example] = {}
    for key in dict.fromkeys(keys):
        name = session.execute(select(ImageRow.external_id).where(ImageRow.id == key)).scalar_one()
        texts = select(TextRow.text).where(TextRow.image_id == key)
        shortest = texts.order_by(func.length(TextRow.text), TextRow.position).limit(1)
        example = Example(name, session.execute(shortest).scalar_one_or_none() or "")
        shown.setdefault(example.text or name, example)
    return tuple(shown.values())


def _with_text(session: Session, collection_id: int, spread: Sequence[int]) -> list[int]:
    """Return the images with a text at some keys, which rise, or the next ones after them, or the last."""
    # Read from the texts: a search for images with one would walk over all of those without.
    here = select(ImageRow.id).where(ImageRow.id == TextRow.image_id, ImageRow.collection_id == collection_id)
    key = TextRow.image_id
    query = select(key).where(key.between(spread[0], spread[-1]), here.exists()).limit(1)
    last = session.execute(query.order_by(key.desc())).scalar()
    if last is None:
        return []
    following = (session.execute(query.where(key >= at).order_by(key)).scalar() for at in spread)
    return [last if key_at is None else key_at for key_at in following]


class HashedTexts:
    """Counts the texts of a field that is in memory by their hashes."""

    def __init__(self, state: CollectionState, field: str, column: Column, passing: Keys | None) -> None:
        values = select_values(state.collection_id, field, "text")
        self._session = state.session
        self._key, self._column = values.selected_columns
        self._texts = values.with_only_columns(self._column).distinct()
        self._counted: Counts = column.counts(passing)

    def most_frequent(self) -> TextCounts:
        """Count all texts."""
        hashes, counts, images = self._counted
        if len(hashes) <= MAX_VALUES:
            return TextCounts(self._named(hashes, counts, images), len(hashes))
        last = np.partition(counts, -MAX_VALUES)[-MAX_VALUES]
        more, tied = counts > last, counts == last
        frequent = self._named(hashes[more], counts[more], images[more])
        room = MAX_VALUES - len(frequent)
        if np.count_nonzero(tied) <= _MAX_LOOKED_UP:
            equals = self._named(hashes[tied], counts[tied], images[tied])
        else:
            equals = [(text, int(last)) for text in self._first(hashes[tied], room)]
        return TextCounts(frequent + equals[:room], len(hashes))

    def containing(self, text: str) -> TextCounts:
        """Count the texts that contain another, case-insensitively."""
        if not storable_text(text):
            return TextCounts([], 0)
        # As it is, or in lower case, capitals or a capital at its head: databases compare only letters of
        # ASCII without regard to case.
        forms = dict.fromkeys((text, text.lower(), text.upper(), text.title()))
        query = self._texts.where(or_(*(self._column.icontains(form, autoescape=True) for form in forms)))
        frequent: list[tuple[str, int]] = []
        distinct = 0
        for counted in self._counted_of(query):
            distinct += len(counted)
            frequent = _ordered([*frequent, *counted])[:MAX_VALUES]
        return TextCounts(frequent, distinct)

    def every(self) -> Iterator[tuple[str, int]]:
        """Give each text, and how many images have it."""
        return chain.from_iterable(self._counted_of(self._texts))

    def _counted_of(self, query: Select[Any]) -> Iterator[list[tuple[str, int]]]:
        with self._session.execute(query.execution_options(yield_per=_ROWS_AT_ONCE)) as result:
            for some in result.scalars().partitions():
                yield [(one, count) for one, count in zip(some, self._counts_of(some), strict=True) if count]

    def _counts_of(self, texts: Sequence[str]) -> list[int]:
        hashes = np.fromiter(map(hash, texts), dtype=np.int64, count=len(texts))
        present = contains_sorted(self._counted.values, hashes)
        positions = np.searchsorted(self._counted.values, hashes[present])
        counts = np.zeros(len(texts), dtype=np.int64)
        counts[present] = self._counted.counts[positions]
        return counts.tolist()

    def _named(
        self, hashes: NDArray[np.int64], counts: NDArray[np.int64], images: Keys
    ) -> list[tuple[str, int]]:
        """Return the texts of hashes, by an image that has each."""
        count_of = dict(zip(hashes.tolist(), counts.tolist(), strict=True))
        texts = self._session.execute(self._texts.where(self._key.in_(images.tolist()))).scalars()
        return _ordered([(text, count_of[hash(text)]) for text in texts if hash(text) in count_of])

    def _first(self, hashes: NDArray[np.int64], count: int) -> list[str]:
        """Return the first texts, in their order, that have one of many hashes, which rise."""
        column, texts = self._column, list[str]()
        query = self._texts.order_by(column).limit(_ROWS_AT_ONCE)
        after: list[ColumnElement[bool]] = []
        while len(texts) < count:
            some = self._session.execute(query.where(*after)).scalars().all()
            if not some:
                break
            present = contains_sorted(hashes, np.fromiter(map(hash, some), dtype=np.int64, count=len(some)))
            texts += [text for text, is_present in zip(some, present, strict=True) if is_present]
            after = [column > some[-1]]
        return texts[:count]


def _ordered(counted: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
    return sorted(counted, key=lambda one: (-one[1], one[0]))
