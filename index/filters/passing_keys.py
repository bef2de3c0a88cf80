"""Cache of the keys that pass the latest filters."""

from collections.abc import Collection
from typing import Final

import numpy as np
from sqlalchemy.orm import Session

from index.catalogue import Reading
from index.catalogue.collections import Target
from index.filters.column_cache import CacheKey, IncrementalCache, contains_sorted, refresh_limit
from index.filters.field_columns import FieldColumns
from index.filters.grammar import Filter
from index.filters.sql import change_since, passing_keys
from index.vectors.protocol import Keys

_CACHE_BYTES: Final = 64 * 1024 * 1024


class PassingKeys:
    """LRU cache of the keys that pass a filter, refreshed after writes.

    Args:
        fields: The fields that are in memory.
    """

    def __init__(self, fields: FieldColumns) -> None:
        self._found: IncrementalCache[Keys] = IncrementalCache(_CACHE_BYTES)
        self._fields = fields

    def get(
        self,
        reading: Reading,
        place: CacheKey,
        sequence: int,
        filter: Filter,
    ) -> Keys:
        """Return `passing_keys`, from memory but for what was written since.

        The array is the same as long as no key comes or goes.

        Args:
            reading: Read transaction of the catalogue at `sequence`.
            place: The collection, whether keys of images or of their texts are wanted, and the filter as a
                text, the same for the same filter.
            sequence: The collection's sequence number.
            filter: Filter to evaluate.
        """
        held = self._found.held(place, sequence)
        if held is not None:
            return held
        collection_id, target, _ = place

        def read() -> Keys:
            keys = self._fields.passing(reading, collection_id, sequence, filter, target)
            return passing_keys(reading.session, collection_id, filter, target) if keys is None else keys

        def catch_up(then: int, before: Keys) -> Keys | None:
            keys = self._fields.passing(reading, collection_id, sequence, filter, target)
            if keys is None:
                return _caught_up(reading.session, collection_id, then, before, filter, target)
            return before if np.array_equal(keys, before) else keys

        return self._found.get(place, sequence, read, catch_up)

    def every(self, reading: Reading, collection_id: int, sequence: int, target: Target) -> Keys:
        """Return the keys of all images or texts of a collection, rising; see `FieldColumns.every`."""
        return self._fields.every(reading, collection_id, sequence, target)

    def warm(self, reading: Reading, collection_id: int, sequence: int) -> None:
        """Read the fields that filters may name; see `FieldColumns.warm`."""
        self._fields.warm(reading, collection_id, sequence)

    def keep(self, collections: Collection[int]) -> None:
        """Forget the keys of all other collections."""
        self._found.keep(collections)
        self._fields.keep(collections)


def _caught_up(
    session: Session, collection_id: int, sequence: int, keys: Keys, filter: Filter, target: Target
) -> Keys | None:
    """Return the keys that pass now, given those that did, or None where too much was written since."""
    change = change_since(session, collection_id, sequence, filter, target, refresh_limit(len(keys)))
    if change is None:
        return None
    gone = np.setdiff1d(change.touched, change.passing, assume_unique=True)
    gone = gone[contains_sorted(keys, gone)]
    more = change.passing[~contains_sorted(keys, change.passing)]
    if not len(gone) and not len(more):
        return keys
    keys = np.delete(keys, np.searchsorted(keys, gone))
    return np.insert(keys, np.searchsorted(keys, more), more)
