"""Filters as SQL."""

import operator
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any, Final, NamedTuple, assert_never, cast

import numpy as np
from sqlalchemy import ColumnElement, and_, exists, not_, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from index.catalogue.collections import Target
from index.catalogue.tables import AttributeRow, FieldRow, FindingRow, ImageRow, TextRow
from index.filters.column_cache import all_keys, contains_sorted, read_keys, touched_since
from index.filters.columns import TEXT_COLUMNS, Columns
from index.filters.dates import parse_date
from index.filters.grammar import (
    BUILT_IN_FIELDS,
    And,
    AnyOf,
    Condition,
    Equals,
    FieldKind,
    Filter,
    HasFinding,
    Not,
    Or,
    Range,
    check_dates,
    check_filter,
    conditions,
    kind_of,
)
from index.filters.intervals import kinds
from index.vectors.protocol import Keys

# Up to so many conditions are index subqueries of their own, which the database joins.
_SEPARATE: Final = 8
# The texts of so many images are looked up by image.
_MAX_LISTED_IMAGES: Final = 1000
_TEXTS_AT_ONCE: Final = 10_000


class Change(NamedTuple):
    """Changes of a collection: keys of images or texts, rising.

    Attributes:
        touched: Keys that were removed or written.
        passing: Keys among them that pass the filter now.
    """

    touched: Keys
    passing: Keys


def known_fields(session: Session, collection_id: int) -> dict[str, frozenset[FieldKind]]:
    """Return the fields that a collection's filters can name, with the kinds of their values."""
    found: dict[str, set[FieldKind]] = {name: {"text"} for name in BUILT_IN_FIELDS}
    query = select(FieldRow.name, FieldRow.kind).where(FieldRow.collection_id == collection_id)
    for name, kind in session.execute(query):
        found.setdefault(name, set()).add(cast(FieldKind, kind))
    return {name: frozenset(kinds) for name, kinds in found.items()}


def passing_keys(session: Session, collection_id: int, filter: Filter, target: Target = "images") -> Keys:
    """Return the keys of all images of a collection that pass a filter, or of their texts, rising.

    Raises:
        FilterError: The filter names an unknown field, or compares it with a wrong kind of value.
    """
    check_filter(filter, known_fields(session, collection_id))
    check_dates(filter, partial(_has_dates, session, collection_id))
    if _needs_columns(filter):
        return _keys_by_columns(session, collection_id, filter, target)
    passes = _sql(filter, partial(_is_among, collection_id))
    return read_keys(session, all_keys(collection_id, target).where(passes))


def change_since(
    session: Session, collection_id: int, sequence: int, filter: Filter, target: Target, most: int
) -> Change | None:
    """Return what was written to a collection after a sequence number, or None if that is too much.

    Args:
        session: Session of the catalogue.
        collection_id: Key of the collection.
        sequence: The sequence number.
        filter: Filter to evaluate; known to name fields that the collection has.
        target: Whether keys of images or of their texts are wanted.
        most: Maximum number of keys.
    """
    touched = touched_since(session, collection_id, sequence, target, most)
    if touched is None:
        return None
    if _needs_columns(filter):
        return Change(touched, _keys_by_columns(session, collection_id, filter, target, sequence))
    written = all_keys(collection_id, target).where(ImageRow.sequence > sequence)
    return Change(touched, read_keys(session, written.where(_sql(filter, _has))))


def _has_dates(session: Session, collection_id: int, field: str) -> bool:
    """Whether a value of a field is a date, or it has no texts at all."""
    of_field = AttributeRow.collection_id == collection_id, AttributeRow.name == field
    query = select(AttributeRow.text_value).where(*of_field, AttributeRow.text_value.is_not(None))
    with session.connection().execute(query.execution_options(yield_per=_TEXTS_AT_ONCE)) as rows:
        texts = rows.scalars()
        first = next(texts, None)
        return first is None or any(parse_date(text) is not None for text in chain([first], texts))


def _needs_columns(filter: Filter) -> bool:
    """Whether a filter has many conditions, or such on dates, which the database holds as texts."""
    every = list(conditions(filter))
    return len(every) > _SEPARATE or any("date" in kinds(condition) for condition in every)


def _keys_by_columns(
    session: Session, collection_id: int, filter: Filter, target: Target, since: int | None = None
) -> Keys:
    """Return the keys that pass, rising; with a sequence number, of what was written after it."""
    images = Columns(session, collection_id, since).passing(filter)
    if target == "images":
        return images
    if len(images) <= _MAX_LISTED_IMAGES:
        return read_keys(session, select(TextRow.id).where(TextRow.image_id.in_(images.tolist())))
    query = all_keys(collection_id, target).add_columns(ImageRow.id)
    if since is not None:
        query = query.where(ImageRow.sequence > since)
    found = np.array(session.execute(query).all(), dtype=np.int64).reshape(-1, 2)
    return np.sort(found[contains_sorted(images, found[:, 1]), 0])


def _sql(filter: Filter, attribute: Callable[[Condition], ColumnElement[bool]]) -> ColumnElement[bool]:
    """Return whether an image passes; `attribute` tells whether it has one that satisfies a condition."""
    if isinstance(filter, And):
        return and_(*(_sql(part, attribute) for part in filter.filters))
    if isinstance(filter, Or):
        return or_(*(_sql(part, attribute) for part in filter.filters))
    if isinstance(filter, Not):
        return not_(_sql(filter.filter, attribute))
    if filter.field in TEXT_COLUMNS:
        column = TEXT_COLUMNS[filter.field]
        # A comparison with NULL is NULL, and so is its negation; IS NOT NULL makes both false or true.
        return and_(column.is_not(None), _compares_text(column, filter))
    return attribute(filter)


def _is_among(collection_id: int, condition: Condition) -> ColumnElement[bool]:
    """Return a condition for many images: one subquery finds all that satisfy it, by value."""
    if isinstance(condition, HasFinding):
        return ImageRow.id.in_(
            select(FindingRow.image_id).where(
                FindingRow.collection_id == collection_id, FindingRow.image_finding == condition.value
            )
        )
    return ImageRow.id.in_(
        select(AttributeRow.image_id).where(
            AttributeRow.collection_id == collection_id, _compares_attribute(condition)
        )
    )


def _has(condition: Condition) -> ColumnElement[bool]:
    """Return a condition for few images: a subquery reads the attributes of each."""
    if isinstance(condition, HasFinding):
        return exists().where(FindingRow.image_id == ImageRow.id, FindingRow.image_finding == condition.value)
    return exists().where(AttributeRow.image_id == ImageRow.id, _compares_attribute(condition))


def _compares_attribute(condition: Condition) -> ColumnElement[bool]:
    kinds = sorted({kind_of(value) for value in condition.values()})
    compares = or_(*(_compares_kind(condition, kind) for kind in kinds))
    return and_(AttributeRow.name == condition.field, compares)


def _compares_kind(condition: Condition, kind: FieldKind) -> ColumnElement[bool]:
    if kind == "text":
        # Only text has a text value, so its kind needs no check.
        return _compares_text(AttributeRow.text_value, condition)
    column = AttributeRow.number_value
    match condition:
        case Range():
            holds = and_(*(_OPERATORS[sign](column, float(bound)) for sign, bound in condition.bounds()))
        case Equals() | AnyOf() | HasFinding():
            holds = column.in_([float(value) for value in condition.values() if kind_of(value) == kind])
        case _:
            assert_never(condition)
    return and_(AttributeRow.kind == kind, holds)


def _compares_text(column: InstrumentedAttribute[Any], condition: Condition) -> ColumnElement[bool]:
    match condition:
        case Range():
            return and_(*(_OPERATORS[sign](column, bound) for sign, bound in condition.bounds()))
        case Equals() | AnyOf() | HasFinding():
            return column.in_([value for value in condition.values() if isinstance(value, str)])
        case _:
            assert_never(condition)


_OPERATORS: Final[dict[str, Callable[[Any, Any], ColumnElement[bool]]]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}
