"""Cache of the keys that pass the latest filters."""

from collections.abc import Collection
from typing import Final

import numpy as np
from sqlalchemy.orm import Session

from index.catalogue.collections import Target
from index.filters.column_cache import (
    CacheKey,
    CollectionState,
    IncrementalCache,
    contains_sorted,
    refresh_limit,
)
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

    def get(self, state: CollectionState, filter: Filter, target: Target) -> Keys:
        """Return `passing_keys`, from memory but for what was written since.

        The array is the same as long as no key comes or goes.
        """
        place = CacheKey(state.collection_id, target, filter.text)
        held = self._found.held(place, state.sequence)
        if held is not None:
            return held

        def read() -> Keys:
            keys = self._fields.passing(state, filter, target)
            return passing_keys(state.session, state.collection_id, filter, target) if keys is None else keys

        def catch_up(then: int, before: Keys) -> Keys | None:
            keys = self._fields.passing(state, filter, target)
            if keys is None:
                return _caught_up(state.session, state.collection_id, then, before, filter, target)
            return before if np.array_equal(keys, before) else keys

        return self._found.get(place, state.sequence, read, catch_up)

    def every(self, state: CollectionState, target: Target) -> Keys:
        """Return the keys of all images or texts of a collection, rising."""
        return self._fields.every(state, target)

    def warm(self, state: CollectionState) -> None:
        """Read the fields that filters may name; see `FieldColumns.warm`."""
        self._fields.warm(state)

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
