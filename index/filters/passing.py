"""Keys of the images and texts that pass filters, by columns of values in memory, kept up with writes.

For fields with many different texts, such as ids, and fields that don't fit into memory, only the values that
a filter names are read.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from index.catalogue import Reading
from index.catalogue.collections import Target
from index.catalogue.tables import AttributeRow, FindingRow, ImageRow, TextRow
from index.filters.column_cache import (
    CacheKey,
    CollectionCache,
    CollectionState,
    Numbered,
    all_keys,
    contains_sorted,
    kept_up,
    read_keys,
)
from index.filters.columns import (
    UNBOUNDED,
    Column,
    Columns,
    Interval,
    Mask,
    TooManyError,
    evaluate,
    extent,
    intervals,
    joined,
    kinds,
    known_fields,
)
from index.filters.dates import parse_date
from index.filters.grammar import (
    FINDING_FIELD,
    Condition,
    FieldKind,
    Filter,
    HasFinding,
    check_dates,
    check_filter,
    conditions,
)
from index.vectors.protocol import NOTHING, Keys
from training.clinical.findings import STATES

_COLUMN_BYTES: Final = 256 * 1024**2
_KEYS_BYTES: Final = 64 * 1024**2
_MAX_VALUES: Final = 4 * 1024**2
_MAX_TEXTS: Final = 10_000
# Keys that are no sparser than one in so many are evaluated in a mask.
_SPARSE: Final = 64
_TEXTS_AT_ONCE: Final = 10_000


@dataclass(frozen=True, slots=True)
class _Fields:
    kinds: Mapping[str, frozenset[FieldKind]]
    nbytes: int = 0


class FieldColumns:
    """Caches the most recently filtered fields, and the keys that passed the filters; threads may share it.

    Args:
        max_bytes: Memory of all fields; with 0 none is in memory, but the hashes of one that is counted.
    """

    def __init__(self, max_bytes: int = _COLUMN_BYTES) -> None:
        self._max_bytes = max_bytes
        self._max_values = min(_MAX_VALUES, max_bytes // 32)
        self._fields: CollectionCache[_Fields] = CollectionCache(max_bytes)
        self._columns: CollectionCache[Column] = CollectionCache(max_bytes)
        self._hashed: CollectionCache[Column] = CollectionCache(max_bytes)
        # Fields that do not fit: they stay so until the next start.
        self._too_large: set[CacheKey] = set()
        self._members: CollectionCache[Numbered] = CollectionCache(max_bytes)
        self._passing: CollectionCache[Keys] = CollectionCache(_KEYS_BYTES)

    def keep(self, collections: Collection[int]) -> None:
        """Forget all other collections."""
        for cache in (self._fields, self._columns, self._hashed, self._members, self._passing):
            cache.keep(collections)
        # Copied at once: other threads may add some.
        for key in self._too_large.copy():
            if key.collection_id not in collections:
                self._too_large.discard(key)

    def warm(self, state: CollectionState) -> None:
        """Read the fields of a collection, or bring them up to date, until they take half of the memory."""
        fields = self._field_kinds(state)
        named = [(name, kind) for name in fields for kind in fields[name]]
        for field, kind in sorted([*named, (FINDING_FIELD, "text")]):
            if self._columns.nbytes > self._max_bytes // 2:
                return
            self.column(state, field, kind)
        self._members_at(state, "images")

    def passing(self, state: CollectionState, filter: Filter | None, target: Target) -> Keys:
        """Return the keys of images or texts that pass a filter, rising, from memory but for later writes.

        Without a filter all pass.

        The array is the same as long as no key comes or goes.

        Raises:
            FilterError: The filter names an unknown field, or compares it with a wrong kind of value.
        """
        if filter is None:
            return self._members_at(state, target).keys

        def read() -> Keys:
            check_filter(filter, self._field_kinds(state))
            check_dates(filter, partial(self._has_dates, state))
            return self._evaluated(state, filter, target)

        def catch_up(_then: int, before: Keys) -> Keys:
            keys = read()
            return before if np.array_equal(keys, before) else keys

        key = CacheKey(state.collection_id, target, filter.text)
        return self._passing.get(key, state.sequence, read, catch_up)

    def passing_among(
        self, state: CollectionState, filter: Filter, target: Target, allowed: Keys | None
    ) -> Keys:
        """Return those of the allowed keys, which rise, that pass a filter; None allows all."""
        keys = self.passing(state, filter, target)
        return keys if allowed is None else keys[contains_sorted(allowed, keys)]

    def column(self, state: CollectionState, field: str, kind: FieldKind) -> Column | None:
        """Return all values of a field; None if they don't fit."""
        key = CacheKey(state.collection_id, "images", f"{kind} {field}")
        # Ids differ for each image, and an index finds them.
        if field == "id" or not self._max_values or key in self._too_large:
            return None

        def read(since: int | None) -> Column:
            if key in self._too_large:
                raise TooManyError
            columns = Columns(state.session, state.collection_id, since)
            if since is not None:
                return columns.column(field, kind)
            try:
                return columns.column(field, kind, [UNBOUNDED], self._max_values, _MAX_TEXTS)
            except TooManyError:
                # Marked before other threads continue, which would read it as well.
                self._too_large.add(key)
                raise

        try:
            return kept_up(self._columns, state, "images", key.name, read, self._fits)
        except TooManyError:
            self._columns.discard(key)
            return None

    def hashed(self, state: CollectionState, field: str) -> Column:
        """Return all texts of a field by their hashes."""

        def read(since: int | None) -> Column:
            return Columns(state.session, state.collection_id, since).hashed(field)

        return kept_up(self._hashed, state, "images", field, read)

    def _field_kinds(self, state: CollectionState) -> Mapping[str, frozenset[FieldKind]]:
        return self._fields.get(
            CacheKey(state.collection_id, "images", ""),
            state.sequence,
            lambda: _Fields(known_fields(state.session, state.collection_id)),
        ).kinds

    def _has_dates(self, state: CollectionState, field: str) -> bool:
        dates = self.column(state, field, "date")
        if dates is not None and len(dates.images):
            return True
        return _has_dates(state.session, state.collection_id, field)

    def _values(
        self, state: CollectionState, field: str, kind: FieldKind, parts: Sequence[Interval], *, alone: bool
    ) -> Column:
        """Return all values of a field, or only those within intervals if they don't all fit."""
        column = self.column(state, field, kind)
        if column is not None:
            return column

        def read(since: int | None) -> Column:
            columns = Columns(state.session, state.collection_id, since)
            # For a single condition, all images have matching values.
            return columns.matching(field, kind, parts) if alone else columns.column(field, kind, parts)

        return kept_up(self._columns, state, "images", f"{kind} {field} {alone} {parts}", read, self._fits)

    def _fits(self, changed: Column) -> bool:
        return len(changed) <= self._max_values and len(changed.texts or ()) <= _MAX_TEXTS

    def _members_at(self, state: CollectionState, target: Target) -> Numbered:
        def read(since: int | None) -> Numbered:
            written = [] if since is None else [ImageRow.sequence > since]
            query = all_keys(state.collection_id, target).where(*written)
            if target == "images":
                keys = read_keys(state.session, query)
                return Numbered(keys, keys)
            rows = state.session.connection().execute(query.add_columns(ImageRow.id)).all()
            pairs = np.array(rows, dtype=np.int64).reshape(-1, 2)
            pairs = pairs[np.argsort(pairs[:, 0])]
            return Numbered(pairs[:, 0].copy(), pairs[:, 1].copy())

        return kept_up(self._members, state, target, "", read)

    def _evaluated(self, state: CollectionState, filter: Filter, target: Target) -> Keys:
        requested: dict[tuple[str, FieldKind], list[list[Interval]]] = {}
        for condition in conditions(filter):
            for kind in kinds(condition):
                requested.setdefault((condition.field, kind), []).append(intervals(condition, kind))
        columns = {
            name: self._values(state, *name, joined([*chain(*parts)]), alone=len(parts) == 1)
            for name, parts in requested.items()
        }
        # Whether an image passes that has none of the values.
        is_open = bool(evaluate(filter, lambda _: np.zeros(1, dtype=np.bool_))[0])
        every = self._members_at(state, "images").keys if is_open else NOTHING
        # A column may be of a later state than the others, with images that came since.
        extents = [
            bounds for bounds in (*(column.extent for column in columns.values()), extent(every)) if bounds
        ]
        if not extents:
            return NOTHING
        low = min(lowest for lowest, _ in extents)
        size = max(highest for _, highest in extents) - low + 1
        images, rows = None, {name: column.images for name, column in columns.items()}
        if size > _SPARSE * (len(every) + sum(map(len, rows.values()))):
            images = np.unique(np.concatenate([every, *rows.values()]))
            rows = {name: np.searchsorted(images, keys) for name, keys in rows.items()}
            low, size = 0, len(images)

        def mask(condition: Condition) -> Mask:
            passed = np.zeros(size, dtype=np.bool_)
            for kind in kinds(condition):
                name = condition.field, kind
                for some in columns[name].slices(intervals(condition, kind)):
                    passed[rows[name][some] - low] = True
            return passed

        passing = evaluate(filter, mask)
        if is_open:
            # Keys between those of the collection pass as well.
            present = np.zeros(size, dtype=np.bool_)
            present[every - low if images is None else np.searchsorted(images, every)] = True
            passing &= present
        keys: Keys = low + np.flatnonzero(passing) if images is None else images[passing]
        if target == "images":
            return keys
        texts = self._members_at(state, "texts")
        return texts.keys[contains_sorted(keys, texts.numbers)]


def passing_keys(session: Session, collection_id: int, filter: Filter, target: Target = "images") -> Keys:
    """Return the keys of all images or texts that pass a filter, rising, with nothing in memory.

    Raises:
        FilterError: The filter names an unknown field, or compares it with a wrong kind of value.
    """
    state = CollectionState(Reading(lambda: nullcontext(session)), collection_id, 0)
    return FieldColumns(0).passing(state, filter, target)


def _has_dates(session: Session, collection_id: int, field: str) -> bool:
    """Whether a value of a field is a date, or it has no texts at all."""
    in_field = AttributeRow.collection_id == collection_id, AttributeRow.name == field
    query = select(AttributeRow.text_value).where(*in_field, AttributeRow.text_value.is_not(None))
    with session.connection().execute(query.execution_options(yield_per=_TEXTS_AT_ONCE)) as rows:
        texts = rows.scalars()
        first = next(texts, None)
        return first is None or any(parse_date(text) is not None for text in chain([first], texts))


def texts_saying(session: Session, keys: Keys, findings: Sequence[HasFinding]) -> Keys:
    """Return those of some texts, by their keys (N,), that say one of these, in their order.

    A text that mentions a finding in several states says the first of `STATES` that it has.
    """
    query = (
        select(TextRow.id, FindingRow.finding, FindingRow.state)
        .join(
            FindingRow,
            (FindingRow.image_id == TextRow.image_id) & (FindingRow.position == TextRow.position),
        )
        .where(FindingRow.finding.in_({finding.finding for finding in findings}))
    )
    states: dict[tuple[int, str], str] = {}
    for start in range(0, len(keys), _TEXTS_AT_ONCE):
        some = query.where(TextRow.id.in_(keys[start : start + _TEXTS_AT_ONCE].tolist()))
        for key, finding, state in session.execute(some):
            states[key, finding] = min(state, states.get((key, finding), state), key=STATES.index)
    stated = {(finding.finding, finding.state) for finding in findings}
    saying = {key for (key, finding), state in states.items() if (finding, state) in stated}
    return np.array([key for key in keys.tolist() if key in saying], dtype=np.int64)
