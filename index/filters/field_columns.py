"""Whole fields in memory, kept up with writes: filters are evaluated without the database.

Fields of many different texts, such as ids, and fields that do not fit are left to the database.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from sqlalchemy.orm import Session

from index.catalogue.collections import Target
from index.catalogue.tables import ImageRow
from index.filters.column_cache import (
    CacheKey,
    CollectionState,
    IncrementalCache,
    all_keys,
    read_keys,
    refresh_limit,
    touched_since,
)
from index.filters.columns import Column, Columns, Mask, evaluate, extent
from index.filters.grammar import FINDING_FIELD, Condition, FieldKind, Filter, Range, check_filter, conditions
from index.filters.intervals import UNBOUNDED, intervals, kinds
from index.filters.sql import known_fields
from index.vectors.protocol import Keys

_CACHE_BYTES: Final = 256 * 1024**2
_MAX_VALUES: Final = 4 * 1024**2
_MAX_TEXTS: Final = 10_000
# Sparser keys than one in so many are left to the database.
_SPARSE: Final = 64
_NOTHING: Final[Keys] = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class _Fields:
    """The fields that filters can name."""

    kinds: Mapping[str, frozenset[FieldKind]]
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class _Field:
    """The values of a field; None where they are left to the database."""

    column: Column | None

    @property
    def nbytes(self) -> int:
        return 0 if self.column is None else self.column.nbytes


class _IdMapping:
    """Keys of images or texts (N,), rising, and the image (N,) of each."""

    def __init__(self, keys: Keys, images: Keys) -> None:
        self.keys = keys
        self.images = images
        self.extent = extent(images)

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.images.nbytes


class FieldColumns:
    """Keeps the fields that filters named last; threads may share it.

    Args:
        max_bytes: Memory of all fields; 0 leaves every filter to the database.
    """

    def __init__(self, max_bytes: int = _CACHE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._max_values = min(_MAX_VALUES, max_bytes // 32)
        self._fields: IncrementalCache[_Fields] = IncrementalCache(max_bytes)
        self._columns: IncrementalCache[_Field] = IncrementalCache(max_bytes)
        self._hashed: IncrementalCache[_Field] = IncrementalCache(max_bytes)
        self._members: IncrementalCache[_IdMapping] = IncrementalCache(max_bytes)

    def keep(self, collections: Collection[int]) -> None:
        """Forget all other collections."""
        for held in (self._fields, self._columns, self._hashed, self._members):
            held.keep(collections)

    def warm(self, state: CollectionState) -> None:
        """Read the fields of a collection, or bring them up to date, until they take half of the memory."""
        fields = self._known(state)
        named = [(name, kind) for name in fields for kind in fields[name]]
        for field, kind in sorted([*named, (FINDING_FIELD, "text")]):
            if self._columns.nbytes > self._max_bytes // 2:
                return
            self._column(state, field, kind)
        self._of(state, "images")

    def passing(self, state: CollectionState, filter: Filter, target: Target) -> Keys | None:
        """Return the keys of images or texts that pass a filter, rising; None where the database must tell.

        Raises:
            FilterError: The filter names an unknown field, or compares it with a wrong kind of value.
        """
        if not self._max_values:
            return None
        check_filter(filter, self._known(state))
        for one in conditions(filter):
            if isinstance(one, Range) and (one.dates or one.slips):
                dates = self._column(state, one.field, "date")
                if one.slips or dates is None or not len(dates.images):
                    return None
        columns: dict[tuple[str, FieldKind], Column] = {}
        for field, kind in {(one.field, kind) for one in conditions(filter) for kind in kinds(one)}:
            column = self._column(state, field, kind)
            if column is None:
                return None
            columns[field, kind] = column
        images = self._of(state, "images")
        texts = self._of(state, "texts") if target == "texts" else None
        return _passing(filter, columns, images, texts)

    def every(self, state: CollectionState, target: Target) -> Keys:
        """Return the keys of all images or texts of a collection, rising."""
        return self._of(state, target).keys

    def column(self, state: CollectionState, field: str, kind: FieldKind) -> Column | None:
        """Return a whole field; None where it is left to the database."""
        return self._column(state, field, kind) if self._max_values else None

    def hashed(self, state: CollectionState, field: str) -> Column | None:
        """Return a whole field of texts by their hashes; None where it does not fit."""
        most = self._max_bytes // 32

        def read(since: int | None) -> Column | None:
            return Columns(state.session, state.collection_id, since).hashed(field, most)

        return self._kept(self._hashed, state, field, most, read) if most else None

    def _known(self, state: CollectionState) -> Mapping[str, frozenset[FieldKind]]:
        """Return the fields that filters can name, with the kinds of their values."""
        return self._fields.get(
            CacheKey(state.collection_id, "images", ""),
            state.sequence,
            lambda: _Fields(known_fields(state.session, state.collection_id)),
            lambda *_: None,
        ).kinds

    def _column(self, state: CollectionState, field: str, kind: FieldKind) -> Column | None:
        def read(since: int | None) -> Column | None:
            if field == "id":
                # Different for each image, and found by an index.
                return None
            columns = Columns(state.session, state.collection_id, since)
            if since is not None:
                return columns.column(field, kind)
            return columns.bounded(field, kind, [UNBOUNDED], self._max_values, _MAX_TEXTS)

        return self._kept(self._columns, state, f"{kind} {field}", self._max_values, read)

    def _kept(
        self,
        cache: IncrementalCache[_Field],
        state: CollectionState,
        name: str,
        max_values: int,
        read: Callable[[int | None], Column | None],
    ) -> Column | None:
        """Return a column from a cache, but for what was written since; `read` reads it from then on."""

        def catch_up(then: int, held: _Field) -> _Field | None:
            if held.column is None:
                return held
            most = refresh_limit(len(held.column.images))
            touched = touched_since(state.session, state.collection_id, then, "images", most)
            if touched is None:
                return None
            written = read(then)
            if written is None:
                return _Field(None)
            changed = held.column.changed(touched, written)
            fits = len(changed.images) <= max_values and len(changed.texts or ()) <= _MAX_TEXTS
            return _Field(changed) if fits else None

        place = CacheKey(state.collection_id, "images", name)
        return cache.get(place, state.sequence, lambda: _Field(read(None)), catch_up).column

    def _of(self, state: CollectionState, target: Target) -> _IdMapping:
        def catch_up(then: int, held: _IdMapping) -> _IdMapping | None:
            most = refresh_limit(len(held.keys))
            touched = touched_since(state.session, state.collection_id, then, target, most)
            if touched is None:
                return None
            written = _members(state.session, state.collection_id, target, then)
            kept = ~np.isin(held.keys, touched)
            keys, images = held.keys[kept], held.images[kept]
            at = np.searchsorted(keys, written.keys)
            return _IdMapping(np.insert(keys, at, written.keys), np.insert(images, at, written.images))

        return self._members.get(
            CacheKey(state.collection_id, target, ""),
            state.sequence,
            lambda: _members(state.session, state.collection_id, target),
            catch_up,
        )


def _members(session: Session, collection_id: int, target: Target, since: int | None = None) -> _IdMapping:
    """Return the images or texts of a collection; with a sequence number, those written after it."""
    written = [] if since is None else [ImageRow.sequence > since]
    query = all_keys(collection_id, target).where(*written)
    if target == "images":
        keys = read_keys(session, query)
        return _IdMapping(keys, keys)
    rows = session.connection().execute(query.add_columns(ImageRow.id)).all()
    found = np.array(rows, dtype=np.int64).reshape(-1, 2)
    found = found[np.argsort(found[:, 0])]
    return _IdMapping(found[:, 0].copy(), found[:, 1].copy())


def _passing(
    filter: Filter,
    columns: Mapping[tuple[str, FieldKind], Column],
    images: _IdMapping,
    texts: _IdMapping | None,
) -> Keys | None:
    """Return the keys of images or of texts that pass; None where keys are too sparse for a mask."""
    # A column may be of a later state than the others, with images that came since.
    held: list[_IdMapping | Column] = [images, *columns.values(), *([] if texts is None else [texts])]
    extents = [each.extent for each in held if each.extent is not None]
    if not extents:
        return _NOTHING
    low = min(lowest for lowest, _ in extents)
    size = max(highest for _, highest in extents) - low + 1
    if size > _SPARSE * len(images.keys):
        return None

    def mask(condition: Condition) -> Mask:
        found = np.zeros(size, dtype=np.bool_)
        for kind in kinds(condition):
            column = columns[condition.field, kind]
            for some in column.slices(intervals(condition, kind)):
                found[column.images[some] - low] = True
        return found

    passing = evaluate(filter, mask)
    if evaluate(filter, lambda _: np.zeros(1, dtype=np.bool_))[0]:
        # Keys between those of the collection pass as well.
        every = np.zeros(size, dtype=np.bool_)
        every[images.images - low] = True
        passing &= every
    if texts is not None:
        found: Keys = texts.keys[passing[texts.images - low]]
        return found
    keys: Keys = low + np.flatnonzero(passing)
    return keys
