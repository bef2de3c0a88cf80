"""Exhaustive search: the query is compared with every vector in NumPy, block by block."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from index.vectors.filter_mask import FilterMask, FilterMasks
from index.vectors.id_map import IdMap, Rows
from index.vectors.lock import ReadWriteLock
from index.vectors.protocol import After, Keys, Neighbours, Vectors
from index.vectors.ranking import Scores, best_first, page_offset

# Rough scores this close are ranked by float64 sums.
_TIE: Final = 1e-5
# Vectors that are compared at once: their products stay in the processor's cache.
_BLOCK: Final = 4096
# From this share of dead rows on, the others move up.
_DEAD_SHARE: Final = 0.25


class FlatView(ABC):
    """All vectors in float32; searches run beside each other, writes alone.

    Attributes:
        damaged: Never: they lie in memory.
    """

    damaged: Final = False

    def __init__(self, dim: int) -> None:
        self._room: Vectors = np.empty((0, dim), dtype=np.float32)
        self._ids = IdMap()
        self._masks = FilterMasks()
        self._lock = ReadWriteLock()

    @abstractmethod
    def _rough_scores(self, query: Vectors, vectors: Vectors) -> Vectors:
        """Return the scores (N,) of vectors (N, D) in float32; `_scores` has them exactly."""

    @abstractmethod
    def _scores(self, query: Vectors, vectors: Vectors) -> NDArray[np.float64]:
        """Return the scores (N,) of vectors (N, D), summed row by row in float64."""

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return int(self._room.shape[1])

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self._ids)

    @property
    def memory_bytes(self) -> int:
        """Memory that vectors, keys and filter masks hold."""
        return self._room.nbytes + self._ids.memory_bytes + self._masks.memory_bytes

    def add(self, keys: Keys, vectors: Vectors) -> None:
        """Put in vectors (N, D) under different keys (N,), replacing those of keys already there."""
        with self._lock.writing():
            first = len(self._ids.keys)
            if first + len(keys) > len(self._room):
                room = np.empty((max(first + len(keys), 3 * first // 2), self.dim), dtype=np.float32)
                room[:first] = self._room[:first]
                self._room = room
            self._room[first : first + len(keys)] = vectors
            self._ids.append(keys)
            self._changed()

    def remove(self, keys: Keys) -> None:
        """Take out the vectors of these keys; see `VectorView`."""
        with self._lock.writing():
            if self._ids.drop(keys):
                self._changed()

    def keys(self) -> Keys:
        """Return the keys of all vectors, rising."""
        with self._lock.reading():
            return self._ids.rising()

    def vectors(self, keys: Keys) -> Vectors:
        """Return the vectors (N, D) of keys (N,); see `VectorView`."""
        with self._lock.reading():
            rows, known = self._ids.find(keys)
            if not known.all():
                raise KeyError(int(keys[~known][0]))
            vectors: Vectors = self._room[rows]
            return vectors

    def search(
        self, query: Vectors, k: int, *, allowed: Keys | None = None, after: After | None = None
    ) -> Neighbours:
        """Find the `k` nearest vectors to a query (D,) of length one; see `VectorView`."""
        with self._lock.reading():
            passing = self._masks.get(allowed, self._ids)
            rows, rough = self._compared(query, passing)
            wanted = k if after is None else k + after.rank
            while True:
                likely = _likely(rough, wanted)
                if after is not None:
                    likely = likely[rough[likely] <= np.float32(after.score + 2 * _TIE)]
                keys, scores = best_first(self._ids.keys[rows[likely]], self._exact(query, rows[likely]))
                first = page_offset(keys, scores, after)
                if first + k <= len(keys) or wanted >= len(rows):
                    return Neighbours(keys[first : first + k], scores[first : first + k], exact=True)
                wanted *= 2

    def scores(self, query: Vectors, keys: Keys) -> tuple[Keys, Scores]:
        """Return the keys (N,) that the view holds, and their scores; see `VectorView`."""
        with self._lock.reading():
            rows, known = self._ids.find(keys)
            return keys[known], self._exact(query, rows[known])

    def search_many(self, queries: Vectors, k: int, *, allowed: Keys | None = None) -> list[Neighbours]:
        """Find the `k` nearest vectors to each query (Q, D); see `VectorView`."""
        return [self.search(query, k, allowed=allowed) for query in queries]

    def write(self, folder: Path, stem: str, on_copied: Callable[[], None] | None = None) -> dict[str, Path]:
        """Write the view into files of this folder, by part; then call `on_copied`."""
        files = {part: folder / f"{stem}.{part}" for part in ("rows", "keys")}
        with self._lock.reading():
            with files["rows"].open("wb") as file:
                np.save(file, self._room[: len(self._ids.keys)])
            IdMap.write_keys(files["keys"], self._ids.stored)
        if on_copied is not None:
            on_copied()
        return files

    def read(self, files: Mapping[str, Path]) -> None:
        """Take what `write` put into files in place of what the view holds.

        Raises:
            ValueError: The files hold no vectors of this dimension with one key for each.
        """
        with files["rows"].open("rb") as file:
            room = np.load(file, allow_pickle=False)
        if room.dtype != np.float32 or room.ndim != 2 or room.shape[1] != self.dim:
            raise ValueError("the file holds no float32 vectors of this dimension")
        ids = IdMap.read(files["keys"], len(room))
        with self._lock.writing():
            self._room, self._ids = room, ids
            self._masks.clear()

    def _compared(self, query: Vectors, passing: FilterMask) -> tuple[Rows, Vectors]:
        """Return the rows that pass, and their rough scores."""
        rows = passing.rows
        scores = np.empty(len(rows), dtype=np.float32)
        for start in range(0, len(rows), _BLOCK):
            block = slice(start, start + _BLOCK)
            # A slice needs no copy.
            vectors = self._room[block] if passing.is_all else self._room[rows[block]]
            scores[block] = self._rough_scores(query, vectors[: len(rows[block])])
        return rows, scores

    def _exact(self, query: Vectors, rows: Rows) -> Scores:
        scores = np.empty(len(rows), dtype=np.float32)
        for start in range(0, len(rows), _BLOCK):
            block = slice(start, start + _BLOCK)
            scores[block] = self._scores(query, self._room[rows[block]])
        return scores

    def _changed(self) -> None:
        self._masks.clear()
        if self._ids.dead > max(_BLOCK, _DEAD_SHARE * len(self._ids.keys)):
            alive = self._ids.alive
            self._room = self._room[: len(alive)][alive]
            self._ids = IdMap(self._ids.keys[alive])


def _likely(rough: Vectors, count: int) -> Rows:
    """Return the places of the `count` best rough scores, and of those within the rounding error below."""
    if len(rough) <= count:
        return np.arange(len(rough))
    least = np.partition(rough, len(rough) - count)[len(rough) - count]
    likely: Rows = np.flatnonzero(rough >= least - 2 * _TIE)
    return likely
