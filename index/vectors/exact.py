"""Exact search: FAISS compares the query with every vector, or with those that a filter allows."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import faiss
import numpy as np
from numpy.typing import NDArray

from index.vectors.lock import ReadWriteLock
from index.vectors.protocol import After, Keys, Neighbours, Vectors

# Copying out the allowed vectors beats a scan with a selector up to about this share of all (measured).
_GATHER_SHARE: Final = 0.03
# Scores this close are ranked by float64 sums instead of trusting FAISS's order of float32 additions.
_TIE: Final = 1e-5
# Vectors that are copied at once; a page far behind the first compares every one.
_BLOCK: Final = 8192

_Positions = NDArray[np.int64]


class ExactView:
    """All vectors in a flat FAISS index, float32; searches run beside each other, writes alone.

    Attributes:
        damaged: Never: they lie in memory.
    """

    damaged: Final = False

    def __init__(self, dim: int) -> None:
        self._index = faiss.IndexFlatIP(dim)
        self._keys: Keys = np.empty(0, dtype=np.int64)
        # Position of each key, and the keys in rising order: rising keys, the common case, need no sorting.
        self._order: _Positions = np.empty(0, dtype=np.int64)
        self._lock = ReadWriteLock()

    def read(self, files: Mapping[str, Path]) -> None:
        """Take what `write` put into files in place of what the view holds.

        Raises:
            ValueError: They do not hold a flat index of this dimension and one key for each of its vectors.
        """
        index = faiss.read_index(str(files["rows"]))
        with files["keys"].open("rb") as file:
            held = np.load(file, allow_pickle=False)
        if (
            not isinstance(index, faiss.IndexFlatIP)
            or index.d != self.dim
            or held.dtype != np.int64
            or held.shape != (index.ntotal,)
        ):
            raise ValueError("the files hold no flat index of this dimension with one key for each vector")
        with self._lock.writing():
            self._index, self._keys = index, held
            self._order = np.argsort(held, kind="stable")

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return int(self._index.d)

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self._keys)

    @property
    def memory_bytes(self) -> int:
        """Memory that vectors and keys hold."""
        return len(self) * self.dim * 4 + self._keys.nbytes + self._order.nbytes

    def add(self, keys: Keys, vectors: Vectors) -> None:
        """Put in vectors (N, D) of length one under keys (N,), replacing those of keys already there."""
        with self._lock.writing():
            positions, known = self._find(keys)
            if known.any():
                self._stored()[positions[known]] = vectors[known]
            if not known.all():
                self._append(keys[~known], vectors[~known])

    def remove(self, keys: Keys) -> None:
        """Take out the vectors of these keys; see `VectorView`."""
        with self._lock.writing():
            positions, known = self._find(keys)
            if not known.any():
                return
            gone = np.unique(positions[known])
            self._index.remove_ids(faiss.IDSelectorBatch(len(gone), faiss.swig_ptr(gone)))
            self._keys = np.delete(self._keys, gone)
            self._order = np.argsort(self._keys, kind="stable")

    def keys(self) -> Keys:
        """Return the keys of all vectors, rising."""
        with self._lock.reading():
            return self._keys[self._order]

    def vectors(self, keys: Keys) -> Vectors:
        """Return the vectors (N, D) of keys (N,); see `VectorView`."""
        with self._lock.reading():
            positions, known = self._find(keys)
            if not known.all():
                raise KeyError(int(keys[~known][0]))
            return self._stored()[positions]

    def search(
        self, query: Vectors, k: int, *, allowed: Keys | None = None, after: After | None = None
    ) -> Neighbours:
        """Find the `k` nearest vectors to a query (D,) of length one; see `VectorView`."""
        with self._lock.reading():
            among = None if allowed is None else self._positions(allowed)
            total = len(self) if among is None else len(among)
            wanted = k if after is None else k + after.rank
            while True:
                # One more than wanted shows whether the last place is shared.
                found = self._candidates(query, min(wanted + 1, total), among)
                keys, scores = self._ranked(query, found)
                first = 0 if after is None else _behind(keys, scores, after)
                last = first + k
                settled = last < len(keys) and scores[last - 1] > scores[-1] + _TIE
                if settled or len(found) == total:
                    return Neighbours(keys[first:last], scores[first:last], exact=True)
                wanted *= 2

    def scores(self, query: Vectors, keys: Keys) -> tuple[Keys, NDArray[np.float32]]:
        """Return those of keys (N,) that are there and what they score; see `VectorView`."""
        with self._lock.reading():
            positions, known = self._find(keys)
            scores = self._scores(query, self._stored()[positions[known]])
            return keys[known], scores.astype(np.float32)

    def search_many(self, queries: Vectors, k: int) -> list[Neighbours]:
        """Find the `k` nearest vectors to each query (Q, D); see `VectorView`."""
        return [self.search(query, k) for query in queries]

    def write(self, folder: Path, stem: str, settled: Callable[[], None] | None = None) -> dict[str, Path]:
        """Write what is here now into files of this folder, by part; then `settled` is called."""
        files = {part: folder / f"{stem}.{part}" for part in ("rows", "keys")}
        with self._lock.reading():
            faiss.write_index(self._index, str(files["rows"]))
            with files["keys"].open("wb") as file:
                np.save(file, self._keys)
        if settled is not None:
            settled()
        return files

    def _append(self, keys: Keys, vectors: Vectors) -> None:
        largest = self._keys[self._order[-1:]]
        rising = bool((np.diff(np.concatenate((largest, keys))) > 0).all())
        self._index.add(np.ascontiguousarray(vectors, dtype=np.float32))
        added = np.arange(len(self._keys), len(self._keys) + len(keys))
        self._keys = np.concatenate((self._keys, keys))
        self._order = (
            np.concatenate((self._order, added)) if rising else np.argsort(self._keys, kind="stable")
        )

    def _find(self, keys: Keys) -> tuple[_Positions, NDArray[np.bool_]]:
        """Return the position of each key and whether it is there at all."""
        if not len(self._keys):
            return np.zeros(len(keys), dtype=np.int64), np.zeros(len(keys), dtype=bool)
        place = np.searchsorted(self._keys, keys, sorter=self._order)
        positions = self._order[np.minimum(place, len(self._order) - 1)]
        return positions, self._keys[positions] == keys

    def _positions(self, keys: Keys) -> _Positions:
        positions, known = self._find(keys)
        return positions[known]

    def _stored(self) -> Vectors:
        """Return FAISS's own memory of the vectors (N, D), not a copy."""
        count = self._index.ntotal
        stored: Vectors = faiss.rev_swig_ptr(self._index.get_xb(), count * self.dim).reshape(count, self.dim)
        return stored

    def _candidates(self, query: Vectors, count: int, among: _Positions | None) -> _Positions:
        """Return the positions of the `count` nearest, in no order that matters."""
        total = len(self) if among is None else len(among)
        if count == total:
            return np.arange(total) if among is None else among
        if among is not None and total <= _GATHER_SHARE * len(self):
            scores = self._stored()[among] @ query
            return among[np.argpartition(-scores, count)[:count]]
        parameters = None
        if among is not None:
            parameters = _only(among, len(self))
        _, found = self._index.search(query[None], count, params=parameters)
        positions: _Positions = found[0]
        return positions

    def _scores(self, query: Vectors, vectors: Vectors) -> NDArray[np.float64]:
        """Return the scores (N,) of vectors (N, D), summed row by row in float64.

        Equal vectors then have equal scores wherever they lie.
        """
        scores: NDArray[np.float64] = np.einsum("nd,d->n", vectors, query, dtype=np.float64)
        return scores

    def _ranked(self, query: Vectors, positions: _Positions) -> tuple[Keys, NDArray[np.float32]]:
        """Return keys and scores of these positions, best first; equal scores are in order of key."""
        stored = self._stored()
        scores = np.empty(len(positions), dtype=np.float32)
        for start in range(0, len(positions), _BLOCK):
            vectors = stored[positions[start : start + _BLOCK]]
            scores[start : start + _BLOCK] = self._scores(query, vectors)
        keys = self._keys[positions]
        order = np.lexsort((keys, -scores))
        return keys[order], scores[order]


def _only(positions: _Positions, total: int) -> Any:
    """Return FAISS's parameters for a search among these positions."""
    # Its Python layer takes arrays and settings by name, which its type stubs do not know.
    library: Any = faiss
    passing = np.zeros(total, dtype=bool)
    passing[positions] = True
    return library.SearchParameters(sel=library.IDSelectorBitmap(np.packbits(passing, bitorder="little")))


def _behind(keys: Keys, scores: NDArray[np.float32], after: After) -> int:
    """Return how many of the ranked hits lie at `after` or before it."""
    before = (scores > np.float32(after.score)) | ((scores == np.float32(after.score)) & (keys <= after.key))
    return int(np.count_nonzero(before))
