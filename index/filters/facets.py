"""Facets of a collection: the values of its fields, and a few of its images."""

import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, func, select
from sqlalchemy.orm import Session

from index.catalogue import Catalogue
from index.catalogue.collections import require_collection
from index.catalogue.tables import AttributeRow, ImageRow, TextRow
from index.filters.grammar import FieldKind
from index.filters.sql import known_fields

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
        kinds: Kinds of its values.
        values: The most frequent texts and booleans, most frequent first.
        distinct: Number of different texts and booleans.
        minimum: The smallest number; None without numbers.
        maximum: The largest number; None without numbers.
    """

    name: str
    kinds: tuple[FieldKind, ...]
    values: tuple[FacetValue, ...]
    distinct: int
    minimum: float | None
    maximum: float | None


@dataclass(frozen=True, slots=True)
class Example:
    """An image of the collection, and the shortest of its texts; an empty text when it has none."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Overview:
    """Facets and examples of a collection."""

    facets: tuple[Facet, ...]
    examples: tuple[Example, ...]


class Overviews:
    """Makes overviews, and keeps the latest of each collection until it changes; threads may share it."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._lock = threading.Lock()
        self._made: dict[int, tuple[int, Overview]] = {}

    def of(self, collection: str) -> Overview:
        """Return the overview of a collection.

        Raises:
            UnknownCollectionError: No collection has this name.
        """
        with self._catalogue.read() as session:
            row = require_collection(session, collection)
            with self._lock:
                made = self._made.get(row.id)
            if made is not None and made[0] == row.sequence:
                return made[1]
            overview = Overview(facets(session, row.id), examples(session, row.id))
            with self._lock:
                self._made[row.id] = (row.sequence, overview)
            return overview

    def keep(self, collections: Collection[int]) -> None:
        """Forget the overviews of all other collections."""
        with self._lock:
            self._made = {key: made for key, made in self._made.items() if key in collections}


def facets(session: Session, collection_id: int) -> tuple[Facet, ...]:
    """Count the values of every field, except those that have one for each image, by name."""
    fields = sorted(known_fields(session, collection_id).items())
    return tuple(
        _facet(session, collection_id, name, kinds) for name, kinds in fields if name not in _ONE_EACH
    )


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


def _facet(session: Session, collection_id: int, name: str, kinds: frozenset[FieldKind]) -> Facet:
    values: list[FacetValue] = []
    distinct = 0
    if "text" in kinds:
        query = _split_values(collection_id) if name == "split" else _text_values(collection_id, name)
        values += [FacetValue(value, count) for value, count in _most_frequent(session, query)]
        distinct += session.execute(select(func.count()).select_from(query.subquery())).scalar_one()
    if "boolean" in kinds:
        found = _most_frequent(session, _number_values(collection_id, name, "boolean"))
        values += [FacetValue(bool(value), count) for value, count in found]
        distinct += len(found)
    low, high = _range(session, collection_id, name) if "number" in kinds else (None, None)
    values.sort(key=lambda facet: (-facet.count, str(facet.value)))
    return Facet(name, tuple(sorted(kinds)), tuple(values[:MAX_VALUES]), distinct, low, high)


def _split_values(collection_id: int) -> Select[Any, int]:
    query = select(ImageRow.split.label("value"), func.count().label("images"))
    return query.where(ImageRow.collection_id == collection_id).group_by(ImageRow.split)


def _text_values(collection_id: int, name: str) -> Select[Any, int]:
    return (
        select(AttributeRow.text_value.label("value"), func.count().label("images"))
        .where(*_of_field(collection_id, name), AttributeRow.text_value.is_not(None))
        .group_by(AttributeRow.text_value)
    )


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
