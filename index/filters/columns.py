"""Columns of the values of fields, as the catalogue has them, and the values that conditions ask for.

A database would read the images of each condition by themselves: 256 wide ranges read a collection 256 times.
Here the values that the conditions of a field ask for are joined to intervals that do not overlap, so that an
index finds each value once.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, assert_never, cast

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Select, select, union_all
from sqlalchemy.orm import InstrumentedAttribute, Session

from index.catalogue.tables import AttributeRow, FieldRow, FindingRow, ImageRow
from index.filters.column_cache import contains_sorted
from index.filters.dates import parse_date
from index.filters.grammar import (
    FINDING_FIELD,
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
    kind_of,
)
from index.vectors.protocol import NOTHING, Keys
from training.common.record import OWN_FIELDS, RECORD_FIELDS

_Value = float | str
Mask = NDArray[np.bool_]
_Rows = Select[int, Any]
_ROWS_AT_ONCE: Final = 10_000
# A Python string without its letters, and its slot in a list.
_TEXT_BYTES: Final = 64
TEXT_COLUMNS: Final[dict[str, InstrumentedAttribute[Any]]] = {
    field.name: getattr(ImageRow, field.column) for field in OWN_FIELDS if field.column is not None
}


class Endpoint(NamedTuple):
    """Endpoint of an interval of a field's values: before or after a value, or infinite.

    Attributes:
        part: Below all values, at a value or above all; endpoints are ordered by this first.
        value: The value.
        after: Whether the endpoint is after the value.
    """

    part: int
    value: _Value = 0.0
    after: bool = False


_BELOW: Final = Endpoint(-1)
_ABOVE: Final = Endpoint(1)


class Interval(NamedTuple):
    """All values between two endpoints."""

    low: Endpoint
    high: Endpoint

    @property
    def is_point(self) -> bool:
        """Whether this is a single value."""
        return self.low.part == self.high.part == 0 and self.low.value == self.high.value


def intervals(condition: Condition, kind: FieldKind) -> list[Interval]:
    """Return the values of a kind that a condition allows; of dates the seconds at which they begin."""
    if kind == "date":
        return _range_intervals(condition, kind) if isinstance(condition, Range) else []
    values = [_stored(value) for value in condition.values() if kind_of(value) == kind]
    match condition:
        case Range():
            return _range_intervals(condition, kind) if values else []
        case Equals() | AnyOf() | HasFinding():
            return [Interval(Endpoint(0, value), Endpoint(0, value, after=True)) for value in values]
        case _:
            assert_never(condition)


def _range_intervals(condition: Range, kind: FieldKind) -> list[Interval]:
    low, high = _BELOW, _ABOVE
    for sign, bound in condition.bounds():
        start = end = _stored(bound)
        if kind == "date":
            period = parse_date(str(bound))
            assert period is not None
            start, end = period
        # A period ends before its end; a value or an instant includes it.
        match sign:
            case "gte":
                low = max(low, Endpoint(0, start))
            case "gt":
                low = max(low, Endpoint(0, end, after=start == end))
            case "lt":
                high = min(high, Endpoint(0, start))
            case _:
                high = min(high, Endpoint(0, end, after=start == end))
    return [Interval(low, high)] if low < high else []


def joined(parts: Sequence[Interval]) -> list[Interval]:
    """Return the same values as intervals that do not touch, rising."""
    merged: list[Interval] = []
    for part in sorted(parts):
        if merged and part.low <= merged[-1].high:
            merged[-1] = Interval(merged[-1].low, max(merged[-1].high, part.high))
        else:
            merged.append(part)
    return merged


UNBOUNDED: Final = Interval(_BELOW, _ABOVE)


def kinds(condition: Condition) -> list[FieldKind]:
    """Return the kinds of the values that a condition allows."""
    if isinstance(condition, Range) and condition.is_dated:
        return ["date"]
    return sorted({kind_of(value) for value in condition.values()})


def _stored(value: bool | int | float | str) -> _Value:
    """Return a value as the catalogue compares it: numbers as 64-bit floats."""
    return value if isinstance(value, str) else float(value)


class Counts(NamedTuple):
    """Different values of a field (D,), rising, how many images have each, and the key of one that has it."""

    values: NDArray[Any]
    counts: NDArray[np.int64]
    images: Keys


class Column:
    """The values of one kind that images have in a field, all of them or those of a query.

    Dates are the seconds at which they begin, as `index.filters.dates` counts them.

    Args:
        images: The key of the image of each value, (V,).
        values: The values (V,), rising; of texts their indices in `texts`, or their hashes. None if they
            aren't needed: all are those of the query.
        texts: The texts, rising; None for numbers and hashes.
    """

    def __init__(self, images: Keys, values: NDArray[Any] | None, texts: Sequence[str] | None = None) -> None:
        self.images = images
        self._has_values = values is not None
        self._values = np.zeros(len(images), dtype=np.bool_) if values is None else values
        self.texts = texts
        self.extent = extent(images)

    def __len__(self) -> int:
        return len(self.images)

    @classmethod
    def from_values(cls, images: Keys, values: Sequence[str] | NDArray[Any]) -> "Column":
        """Return the column of values in any order."""
        texts = None
        if not isinstance(values, np.ndarray):
            texts = sorted(set(values))
            index_of = {value: index for index, value in enumerate(texts)}
            values = np.fromiter(
                (index_of[value] for value in values), dtype=_index_type(texts), count=len(values)
            )
        order = np.argsort(values, kind="stable")
        return cls(images[order], values[order], texts)

    @property
    def nbytes(self) -> int:
        """Memory that it holds."""
        texts = 0 if self.texts is None else sum(len(value) + _TEXT_BYTES for value in self.texts)
        return self.images.nbytes + self._values.nbytes + texts

    def slices(self, parts: Sequence[Interval]) -> Iterator[slice]:
        """Return where among `images` those with a value within the intervals are."""
        if not self._has_values:
            yield slice(None)
            return
        for low, high in parts:
            yield slice(self._offset(low), self._offset(high))

    def counts(self, images: Keys | None) -> Counts:
        """Return the different values of some images, rising, and how often each comes."""
        keys, values = self.images, self._values
        if images is not None:
            counted = contains_sorted(images, keys)
            keys, values = keys[counted], values[counted]
        firsts = np.flatnonzero(np.append(values[:1] == values[:1], values[1:] != values[:-1]))
        return Counts(values[firsts], np.diff(firsts, append=len(values)), keys[firsts])

    def changed(self, touched: Keys, written: "Column") -> "Column":
        """Return the column without the values of some images, and with others."""
        kept = ~np.isin(self.images, touched)
        images, values, added, texts = self.images[kept], self._values[kept], written._values, self.texts
        if texts is not None and written.texts is not None:
            before, texts = texts, sorted({*texts, *written.texts})
            values, added = _indices(before, texts)[values], _indices(written.texts, texts)[added]
        at = np.searchsorted(values, added)
        changed = np.insert(values, at, added) if self._has_values else None
        return Column(np.insert(images, at, written.images), changed, texts)

    def _offset(self, endpoint: Endpoint) -> int:
        if endpoint.part:
            return 0 if endpoint.part < 0 else len(self._values)
        if self.texts is None:
            return int(np.searchsorted(self._values, endpoint.value, "right" if endpoint.after else "left"))
        bisect = bisect_right if endpoint.after else bisect_left
        index = bisect(self.texts, endpoint.value)
        # The same type, or all values would be converted.
        return int(np.searchsorted(self._values, self._values.dtype.type(index)))


def extent(keys: Keys) -> tuple[int, int] | None:
    """Return the lowest and the highest of some keys; None without any."""
    return (int(keys.min()), int(keys.max())) if len(keys) else None


def _indices(some: Sequence[str], texts: Sequence[str]) -> NDArray[Any]:
    return np.array([bisect_left(texts, text) for text in some], dtype=_index_type(texts))


def _index_type(texts: Sequence[str]) -> type[np.uint16] | type[np.int64]:
    return np.uint16 if len(texts) < np.iinfo(np.uint16).max else np.int64


class TooManyError(Exception):
    """A field has more values than may be in memory."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Reads the fields that filters name; with `since`, of images written after that sequence number."""

    session: Session
    collection_id: int
    since: int | None = None

    def column(
        self,
        field: str,
        kind: FieldKind,
        parts: Sequence[Interval] = (UNBOUNDED,),
        max_values: int | None = None,
        max_texts: int | None = None,
    ) -> Column:
        """Return the values of a field within intervals.

        Raises:
            TooManyError: There are more values, or distinct texts.
        """
        values: list[Any] = []
        images, texts, count = [NOTHING], set[str](), 0
        for keys, read in self._rows(field, kind, parts):
            values += read if kind == "text" else [np.array(read, dtype=np.float64)]
            images.append(keys)
            count += len(keys)
            if kind == "text" and max_texts is not None:
                texts.update(read)
            if count > (max_values or count) or len(texts) > (max_texts or 0):
                raise TooManyError
        every = values if kind == "text" else np.concatenate([np.empty(0), *values])
        return Column.from_values(np.concatenate(images), every)

    def matching(self, field: str, kind: FieldKind, parts: Sequence[Interval]) -> Column:
        """Return the images with a value within intervals, without the values, which may be many."""
        if self.since is None and kind != "date":
            run = self.session.connection().execute
            images = [
                np.fromiter(run(query).scalars(), dtype=np.int64)
                for query in self._queries(field, kind, parts, keys_only=True)
            ]
        else:
            every = self.column(field, kind, parts)
            images = [every.images[some] for some in every.slices(parts)]
        return Column(np.concatenate([NOTHING, *images]), None)

    def hashed(self, field: str) -> Column:
        """Return the texts of a field by their hashes, which are of 64 bits."""
        images, hashes = [NOTHING], [NOTHING]
        for keys, read in self._rows(field, "text", (UNBOUNDED,)):
            images.append(keys)
            hashes.append(np.fromiter(map(hash, read), dtype=np.int64, count=len(read)))
        return Column.from_values(np.concatenate(images), np.concatenate(hashes))

    def _rows(
        self, field: str, kind: FieldKind, parts: Sequence[Interval]
    ) -> Iterator[tuple[Keys, Sequence[Any]]]:
        """Give the keys of images and the values that they have within intervals, some at a time."""
        for query in self._queries(field, kind, parts):
            # Past the session, which would make objects of the rows first.
            with self.session.connection().execute(
                query.execution_options(yield_per=_ROWS_AT_ONCE)
            ) as result:
                for some in result.partitions():
                    rows: Sequence[Any] = some
                    if kind == "date":
                        periods = ((key, parse_date(text)) for key, text in some)
                        rows = [(key, period.start) for key, period in periods if period is not None]
                    if rows:
                        keys, read = zip(*rows, strict=True)
                        yield np.array(keys, dtype=np.int64), read

    def _queries(
        self, field: str, kind: FieldKind, parts: Sequence[Interval], *, keys_only: bool = False
    ) -> Iterator[_Rows]:
        """Select the keys of images and the values that they have within the intervals."""
        column = _column_of(field, kind)
        # Each mention of a finding has a row.
        if self.since is not None:
            # Changed images are few: all of their values are read.
            written = ImageRow.collection_id == self.collection_id, ImageRow.sequence > self.since
            query = select(ImageRow.id, column).where(*written, *_field_conditions(field, kind))
            if field not in TEXT_COLUMNS:
                table = _table_of(field)
                query = query.join(table, table.image_id == ImageRow.id)
            yield query.distinct() if field == FINDING_FIELD else query
            return
        query = select_values(self.collection_id, field, kind)
        if kind == "date":
            # The catalogue holds texts: all are read that may be dates.
            yield query
            return
        if keys_only:
            query = query.with_only_columns(query.selected_columns[0])
        if field == FINDING_FIELD:
            query = query.distinct()
        points = [part.low.value for part in parts if part.is_point]
        ranges = [query.where(*_bounds(column, part)) for part in parts if not part.is_point]
        if points:
            yield query.where(column.in_(points))
        if ranges:
            yield select(union_all(*ranges).subquery())


def select_values(collection_id: int, field: str, kind: FieldKind) -> Select[int, Any]:
    """Select the key of an image and a value that it has in a field, for all values of a kind."""
    key, collection = ImageRow.id, ImageRow.collection_id
    if field not in TEXT_COLUMNS:
        key, collection = _table_of(field).image_id, _table_of(field).collection_id
    return select(key, _column_of(field, kind)).where(
        collection == collection_id, *_field_conditions(field, kind)
    )


def known_fields(session: Session, collection_id: int) -> dict[str, frozenset[FieldKind]]:
    """Return the fields that a collection's filters can name, with the kinds of their values."""
    fields: dict[str, set[FieldKind]] = {name: {"text"} for name in RECORD_FIELDS}
    query = select(FieldRow.name, FieldRow.kind).where(FieldRow.collection_id == collection_id)
    for name, kind in session.execute(query):
        fields.setdefault(name, set()).add(cast(FieldKind, kind))
    return {name: frozenset(kinds) for name, kinds in fields.items()}


def evaluate(filter: Filter, mask: Callable[[Condition], Mask]) -> Mask:
    """Return which images pass, given which ones satisfy a condition."""
    if isinstance(filter, Not):
        return ~evaluate(filter.filter, mask)
    if isinstance(filter, And | Or):
        mask_of_all = evaluate(filter.filters[0], mask)
        combine = np.logical_and if isinstance(filter, And) else np.logical_or
        for part in filter.filters[1:]:
            combine(mask_of_all, evaluate(part, mask), out=mask_of_all)
        return mask_of_all
    return mask(filter)


def _column_of(field: str, kind: FieldKind) -> InstrumentedAttribute[Any]:
    if field in TEXT_COLUMNS:
        return TEXT_COLUMNS[field]
    if field == FINDING_FIELD:
        return FindingRow.image_finding
    return AttributeRow.text_value if kind in ("text", "date") else AttributeRow.number_value


def _table_of(field: str) -> type[AttributeRow] | type[FindingRow]:
    return FindingRow if field == FINDING_FIELD else AttributeRow


def _field_conditions(field: str, kind: FieldKind) -> Iterator[ColumnElement[bool]]:
    column = _column_of(field, kind)
    yield column.is_not(None)
    if kind == "date":
        # Dates begin with a digit.
        yield column >= "0"
        yield column < ":"
    if field not in TEXT_COLUMNS and field != FINDING_FIELD:
        yield AttributeRow.name == field
        if kind not in ("text", "date"):
            # Only text has a text value, so its kind needs no check.
            yield AttributeRow.kind == kind


def _bounds(column: InstrumentedAttribute[Any], part: Interval) -> Iterator[ColumnElement[bool]]:
    (low_part, low, after_low), (high_part, high, after_high) = part
    if not low_part:
        yield column > low if after_low else column >= low
    if not high_part:
        yield column <= high if after_high else column < high
