"""Filters as SQL, and a small memory of which images passed."""

import operator
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection
from typing import Any, Final

import numpy as np
from sqlalchemy import ColumnElement, and_, not_, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from index.catalogue import Reading
from index.catalogue.tables import AttributeRow, FieldRow, ImageRow, TextRow
from index.filters import (
    BUILT_IN_FIELDS,
    And,
    AnyOf,
    Equals,
    FieldKind,
    Filter,
    Not,
    Or,
    Range,
    check_filter,
    condition_values,
    kind_of,
)
from index.generations import Target
from index.vectors.protocol import Keys

_COLUMNS: Final = {"id": ImageRow.external_id, "split": ImageRow.split, "group": ImageRow.group_name}
_REMEMBERED_BYTES: Final = 64 * 1024 * 1024


def known_fields(session: Session, collection_id: int) -> dict[str, frozenset[FieldKind]]:
    """Return the fields that a collection's filters can name, with the kinds of their values."""
    found: dict[str, set[FieldKind]] = {name: {"text"} for name in BUILT_IN_FIELDS}
    query = select(FieldRow.name, FieldRow.kind).where(FieldRow.collection_id == collection_id)
    for name, kind in session.execute(query):
        found.setdefault(name, set()).add(_KINDS[kind])
    return {name: frozenset(kinds) for name, kinds in found.items()}


def passing_keys(session: Session, collection_id: int, filter: Filter, target: Target = "images") -> Keys:
    """Return the keys of all images of a collection that pass a filter, or of their texts, rising.

    Raises:
        FilterError: It names a field that the collection does not have, or compares it with a wrong kind.
    """
    check_filter(filter, known_fields(session, collection_id))
    if target == "images":
        query = select(ImageRow.id)
    else:
        query = select(TextRow.id).join(ImageRow, ImageRow.id == TextRow.image_id)
    query = query.where(ImageRow.collection_id == collection_id, _sql(collection_id, filter))
    keys = np.fromiter(session.execute(query).scalars(), dtype=np.int64)
    keys.sort()
    return keys


class PassingKeys:
    """Remembers which images passed the latest filters, until the collection changes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: OrderedDict[tuple[int, Target, str], tuple[int, Keys]] = OrderedDict()
        self._bytes = 0

    def get(
        self,
        reading: Reading,
        collection_id: int,
        sequence: int,
        filter: Filter,
        name: str,
        target: Target = "images",
    ) -> Keys:
        """Return `passing_keys`, from memory when nothing was written since.

        Args:
            reading: Of the catalogue, at `sequence`.
            collection_id: Key of the collection.
            sequence: The collection's sequence number.
            filter: What must hold.
            name: The filter as a text, the same for the same filter.
            target: Whether keys of images or of their texts are wanted.
        """
        place = (collection_id, target, name)
        with self._lock:
            held = self._found.get(place)
            if held is not None and held[0] == sequence:
                self._found.move_to_end(place)
                return held[1]
        keys = passing_keys(reading.session, collection_id, filter, target)
        with self._lock:
            self._forget(place)
            self._found[place] = (sequence, keys)
            self._bytes += _cost(name, keys)
            while self._bytes > _REMEMBERED_BYTES:
                self._forget(next(iter(self._found)))
        return keys

    def keep(self, collections: Collection[int]) -> None:
        """Forget the keys of all other collections."""
        with self._lock:
            for place in [place for place in self._found if place[0] not in collections]:
                self._forget(place)

    def _forget(self, place: tuple[int, Target, str]) -> None:
        held = self._found.pop(place, None)
        if held is not None:
            self._bytes -= _cost(place[2], held[1])


def _cost(name: str, keys: Keys) -> int:
    """Bytes that an entry holds; the name of a filter may be longer than the keys that pass it."""
    return keys.nbytes + len(name) + 1024


_KINDS: Final[dict[str, FieldKind]] = {"text": "text", "number": "number", "boolean": "boolean"}


def _sql(collection_id: int, filter: Filter) -> ColumnElement[bool]:
    if isinstance(filter, And):
        return and_(*(_sql(collection_id, part) for part in filter.filters))
    if isinstance(filter, Or):
        return or_(*(_sql(collection_id, part) for part in filter.filters))
    if isinstance(filter, Not):
        return not_(_sql(collection_id, filter.filter))
    if filter.field in _COLUMNS:
        column = _COLUMNS[filter.field]
        # Without a value the comparison alone would be unknown instead of and so would its opposite.
        return and_(column.is_not(None), _compares_text(column, filter))
    return ImageRow.id.in_(
        select(AttributeRow.image_id).where(
            AttributeRow.collection_id == collection_id,
            AttributeRow.name == filter.field,
            _compares_attribute(filter),
        )
    )


def _compares_attribute(condition: Equals | AnyOf | Range) -> ColumnElement[bool]:
    kinds = sorted({kind_of(value) for value in condition_values(condition)})
    return or_(*(_compares_kind(condition, kind) for kind in kinds))


def _compares_kind(condition: Equals | AnyOf | Range, kind: FieldKind) -> ColumnElement[bool]:
    if kind == "text":
        # Only text has a text value, so its kind needs no check.
        return _compares_text(AttributeRow.text_value, condition)
    column = AttributeRow.number_value
    if isinstance(condition, Range):
        holds = and_(*(_OPERATORS[sign](column, float(bound)) for sign, bound in condition.bounds()))
    else:
        values = condition_values(condition)
        holds = column.in_([float(value) for value in values if kind_of(value) == kind])
    return and_(AttributeRow.kind == kind, holds)


def _compares_text(
    column: InstrumentedAttribute[Any], condition: Equals | AnyOf | Range
) -> ColumnElement[bool]:
    if isinstance(condition, Range):
        return and_(*(_OPERATORS[sign](column, bound) for sign, bound in condition.bounds()))
    return column.in_([value for value in condition_values(condition) if isinstance(value, str)])


_OPERATORS: Final[dict[str, Callable[[Any, Any], ColumnElement[bool]]]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}
