"""Caches of what is read of collections, refreshed incrementally after writes."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from index.catalogue import Reading
from index.catalogue.collections import Target
from index.catalogue.tables import CollectionRow, ImageRow, RemovalRow, TextRow
from index.vectors.cache import IncrementalCache, Value
from index.vectors.protocol import Keys


class _Rows(Protocol):
    @property
    def nbytes(self) -> int: ...

    def __len__(self) -> int: ...

    def changed(self, touched: Keys, written: Self) -> Self:
        """Return the value without what some keys have, and with what was written."""


Rows = TypeVar("Rows", bound=_Rows)

# Written images are read one by one; if they are many, or a large share, all are read again.
_MIN_REFRESH_LIMIT: Final = 1000
_REFRESH_SHARE: Final = 1 / 8
# Keys that are no sparser than one in so many are looked up in a mask.
_DENSE: Final = 8


class CacheKey(NamedTuple):
    """A collection's images or texts, and the name of a value of them."""

    collection_id: int
    target: Target
    name: str


class CollectionCache(IncrementalCache[CacheKey, Value]):
    """A cache of values of collections."""

    def keep(self, collections: Collection[int]) -> None:
        """Forget the values of all other collections."""
        with self._lock:
            for key in list(self._entries):
                if key.collection_id not in collections:
                    self._forget(key)


class CollectionState(NamedTuple):
    """A read of one collection, at its sequence number or later."""

    reading: Reading
    collection_id: int
    sequence: int

    @property
    def session(self) -> Session:
        """Session of the read."""
        return self.reading.session


@dataclass(frozen=True, eq=False)
class Numbered:
    """Keys of images or texts (N,), rising, and a number (N,) of each, such as its image or its group."""

    keys: Keys
    numbers: NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        """Memory that it holds."""
        return self.keys.nbytes + self.numbers.nbytes

    def __len__(self) -> int:
        return len(self.keys)

    def changed(self, touched: Keys, written: Self) -> Self:
        """Return the same without some keys, and with others."""
        unchanged = ~contains_sorted(touched, self.keys)
        keys, numbers = self.keys[unchanged], self.numbers[unchanged]
        at = np.searchsorted(keys, written.keys)
        return type(self)(np.insert(keys, at, written.keys), np.insert(numbers, at, written.numbers))


def kept_up(
    cache: IncrementalCache[CacheKey, Rows],
    state: CollectionState,
    target: Target,
    name: str,
    read: Callable[[int | None], Rows],
    fits: Callable[[Rows], bool] = lambda _: True,
) -> Rows:
    """Return a value from a cache, of which only what was written or removed since is read.

    Args:
        cache: Cache of the value.
        state: State of the collection that the value is to be of.
        target: Whether the value is of images or of texts.
        name: Name of the value.
        read: Reads the rows that were written after a sequence number; None: all.
        fits: Returns whether a value with later rows may stay; otherwise all are read again.
    """

    def catch_up(then: int, value: Rows) -> Rows | None:
        touched = touched_since(state, then, target, len(value))
        if touched is None or not len(touched):
            return value if touched is not None else None
        changed = value.changed(touched, read(then))
        return changed if fits(changed) else None

    key = CacheKey(state.collection_id, target, name)
    return cache.get(key, state.sequence, lambda: read(None), catch_up)


def touched_since(state: CollectionState, sequence: int, target: Target, size: int) -> Keys | None:
    """Return the keys of what was written or removed since, rising.

    None if there are so many, compared with the number of keys `size`, that all should be read again, or if
    removals since are forgotten.
    """
    session, collection_id = state.session, state.collection_id
    trimmed = select(CollectionRow.trimmed).where(CollectionRow.id == collection_id)
    if (session.execute(trimmed).scalar_one_or_none() or 0) > sequence:
        return None
    most = max(_MIN_REFRESH_LIMIT, int(_REFRESH_SHARE * size))
    written = all_keys(collection_id, target).where(ImageRow.sequence > sequence)
    removed = select(RemovalRow.key).where(
        RemovalRow.collection_id == collection_id,
        RemovalRow.target == target,
        RemovalRow.sequence > sequence,
    )
    touched: Keys = np.union1d(*(read_keys(session, query.limit(most + 1)) for query in (written, removed)))
    return None if len(touched) > most else touched


def all_keys(collection_id: int, target: Target) -> Select[int]:
    """Select the keys of a collection's images or of their texts."""
    if target == "images":
        query = select(ImageRow.id)
    else:
        query = select(TextRow.id).join(ImageRow, ImageRow.id == TextRow.image_id)
    return query.where(ImageRow.collection_id == collection_id)


def read_keys(session: Session, query: Select[int]) -> Keys:
    """Return the keys that a query finds, rising."""
    keys = np.fromiter(session.execute(query).scalars(), dtype=np.int64)
    keys.sort()
    return keys


def contains_sorted(keys: Keys, some: Keys) -> NDArray[np.bool_]:
    """Return which of `some` keys (S,) are among many rising `keys` (N,)."""
    if len(keys) and (extent := int(keys[-1]) - int(keys[0]) + 1) <= _DENSE * (len(keys) + len(some)):
        present = np.zeros(extent, dtype=np.bool_)
        present[keys - keys[0]] = True
        offsets = some - keys[0]
        inside: NDArray[np.bool_] = (offsets >= 0) & (offsets < extent)
        return inside & present[np.where(inside, offsets, 0)]
    return np.searchsorted(keys, some, "left") < np.searchsorted(keys, some, "right")
