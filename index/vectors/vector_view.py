"""The interface of vector views, and the keys, filters and lock that all of them have."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from index.vectors.filter_mask import FilterMask, FilterMasks
from index.vectors.id_map import IdMap, Mask, Rows
from index.vectors.protocol import After, Keys, Neighbours, Scores, Vectors

# From this share of dead rows on, the others move up.
_DEAD_SHARE: Final = 0.25
_MIN_DEAD: Final = 1000


class ReadWriteLock:
    """Lock that readers share and a writer holds alone; a waiting writer goes before later readers.

    A thread must not take the lock twice.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._readers = 0
        self._writing = False
        self._writers_waiting = 0

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Hold the lock together with other readers."""
        with self._changed:
            while self._writing or self._writers_waiting:
                self._changed.wait()
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                if self._writers_waiting and not self._readers:
                    self._changed.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock alone."""
        with self._changed:
            self._writers_waiting += 1
            try:
                self._changed.wait_for(lambda: not self._writing and not self._readers)
                self._writing = True
            except BaseException:
                # Readers wait for this writer, and no one else would wake them.
                self._changed.notify_all()
                raise
            finally:
                self._writers_waiting -= 1
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()


class VectorView(ABC):
    """Vectors of one generation under integer keys; searches run beside each other, writes alone.

    Attributes:
        dim: Length of a vector.
    """

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self._ids = IdMap()
        self._masks = FilterMasks()
        self._lock = ReadWriteLock()
        # Changes when rows move: anything being built then fits no longer.
        self._layout = 0
        # True after a failed change: keys and rows may not fit together.
        self._inconsistent = False

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self._ids)

    @property
    def memory_bytes(self) -> int:
        """Memory that the view holds, but not on a GPU."""
        return self._ids.memory_bytes + self._masks.memory_bytes

    @property
    def damaged(self) -> bool:
        """True if the view must be read anew."""
        return self._inconsistent

    def add(self, keys: Keys, vectors: Vectors) -> None:
        """Put in vectors (N, D) of length one under different keys (N,), replacing those already there."""
        with self._changing():
            self._append(vectors)
            self._ids.append(keys)
            self._changed()

    def remove(self, keys: Keys) -> None:
        """Take out the vectors of these keys; unknown keys are ignored."""
        with self._changing():
            if self._ids.drop(keys):
                self._changed()

    def keys(self) -> Keys:
        """Return the keys of all vectors, rising."""
        with self._lock.reading():
            return self._ids.rising()

    def vectors(self, keys: Keys) -> Vectors:
        """Return the vectors (N, D), of length one, of keys (N,).

        Raises:
            KeyError: One is not there.
        """
        with self._lock.reading():
            rows = self._ids.find(keys)
            if (rows < 0).any():
                raise KeyError(int(keys[rows < 0][0]))
            return self._get(rows)

    def held_vectors(self, keys: Keys) -> tuple[Keys, Vectors]:
        """Return the keys (N,) that the view holds, in their order, and their vectors."""
        with self._lock.reading():
            rows = self._ids.find(keys)
            known = rows >= 0
            return keys[known], self._get(rows[known])

    def search(
        self, query: Vectors, k: int, *, allowed: Keys | None = None, after: After | None = None
    ) -> Neighbours:
        """Find the `k` nearest vectors to a query (D,) of length one.

        Args:
            query: Query vector.
            k: At most this many; fewer only when fewer can be found.
            allowed: Search among these keys only, in rising order; None for all. Rows of it are cached: the
                array must not change.
            after: Leave out all hits up to this one.
        """
        with self._lock.reading():
            return self._nearest(query, k, self._masks.get(allowed, self._ids), after)

    def search_many(self, queries: Vectors, k: int, *, allowed: Keys | None = None) -> list[Neighbours]:
        """Find the `k` nearest vectors to each query (Q, D) of length one, as `search` does."""
        return [self.search(query, k, allowed=allowed) for query in queries]

    def scores(self, query: Vectors, keys: Keys) -> tuple[Keys, Scores]:
        """Return the keys (N,) that the view holds, in their order, and their scores as in a search."""
        with self._lock.reading():
            rows = self._ids.find(keys)
            known = rows >= 0
            return keys[known], self._score(query, rows[known])

    @abstractmethod
    def write(self, folder: Path, stem: str, on_copied: Callable[[], None] | None = None) -> dict[str, Path]:
        """Write the view into files of this folder, by part; `on_copied` follows once the view may change.

        Raises:
            MovedError: Rows moved meanwhile.
        """

    @abstractmethod
    def read(self, files: Mapping[str, Path]) -> None:
        """Take what `write` put into files in place of what the view holds.

        Raises:
            ValueError: The files do not fit together, or hold vectors of another dimension.
        """

    @abstractmethod
    def _append(self, vectors: Vectors) -> None:
        """Append rows."""

    @abstractmethod
    def _keep(self, alive: Mask) -> None:
        """Let go of all other rows; those behind them move up."""

    @abstractmethod
    def _get(self, rows: Rows) -> Vectors:
        """Return the vectors (N, D) of rows."""

    @abstractmethod
    def _score(self, query: Vectors, rows: Rows) -> Scores:
        """Return the exact scores (N,) of rows."""

    @abstractmethod
    def _nearest(self, query: Vectors, k: int, passing: FilterMask, after: After | None) -> Neighbours:
        """Return a page of hits; see `search`."""

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._lock.writing():
            try:
                yield
            except BaseException:
                self._inconsistent = True
                self._layout += 1
                raise

    def _changed(self) -> None:
        self._masks.clear()
        if self._ids.dead > max(_MIN_DEAD, _DEAD_SHARE * len(self._ids.keys)):
            alive = self._ids.alive
            self._keep(alive)
            self._ids = IdMap(self._ids.keys[alive])
            self._layout += 1
