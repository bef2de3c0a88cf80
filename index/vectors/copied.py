"""The vectors that pass a filter, side by side: nothing else has to be passed over."""

import math
from abc import abstractmethod
from typing import Final

import numpy as np

from index.vectors.coarse import CoarseRows
from index.vectors.passing import WIDE, Passing, SearchedCopy
from index.vectors.positions import Rows
from index.vectors.protocol import After, Keys, Neighbours, Vectors
from index.vectors.ranking import behind, cosines, ranked
from index.vectors.stored import StoredRows
from index.vectors.threads import use_threads

# An inner product that is summed up in float32 is off by at most this for each number.
_ROUNDING: Final = 2.0**-24
# Hits that a scan of 8 bits names beyond those asked for: so many may come close enough.
_REACHING: Final = 128
# Up to so many numbers nothing is gained by a first look at the vectors, which tells what to rank.
_RANKED: Final = 64 * 1024
# Rows that are rounded to 8 bits at once.
_BLOCK: Final = 512


class RankedCopies(SearchedCopy):
    """So few vectors (N, D) of length one that all are ranked, in float64 as their scores are summed."""

    def __init__(self, keys: Keys, vectors: Vectors) -> None:
        super().__init__()
        # Equal scores are in order of key: a sort that leaves them in place need not look at keys.
        rising = np.argsort(keys)
        self._keys = keys[rising]
        self._vectors = vectors[rising].astype(np.float64)

    @property
    def memory_bytes(self) -> int:
        """Memory that vectors and keys hold."""
        return self._keys.nbytes + self._vectors.nbytes

    def search(self, query: Vectors, k: int, after: After | None = None) -> Neighbours:
        """Find the `k` nearest vectors to a query (D,) of length one, exactly; see `SearchedCopy`."""
        scores = cosines(query, self._vectors)
        first = behind(self._keys, scores, after)
        best = (-scores).argsort(kind="stable")[first : first + k]
        return Neighbours(self._keys[best], scores[best], exact=True)


class Copies(SearchedCopy):
    """Vectors under their keys (N,), compared with a query one by one: what they find is exact."""

    def __init__(self, keys: Keys) -> None:
        super().__init__()
        self._keys = keys

    @abstractmethod
    def _vectors_at(self, places: Rows) -> Vectors:
        """Return the vectors (P, D) at these places, exactly of length one."""

    @abstractmethod
    def _reaching(self, query: Vectors, rank: int) -> Rows | None:
        """Return the places of all vectors that may be among the nearest to a query, down to a rank.

        Returns:
            None where too many may be.
        """

    def search(self, query: Vectors, k: int, after: After | None = None) -> Neighbours | None:
        """Find the `k` nearest vectors to a query (D,) of length one, exactly; see `SearchedCopy`."""
        rank = k if after is None else k + after.rank
        while True:
            places = np.arange(len(self._keys)) if rank >= len(self._keys) else self._reaching(query, rank)
            if places is None:
                return None
            keys, scores = ranked(query, self._keys, places, self._vectors_at)
            first = behind(keys, scores, after)
            # Others than before may lie on the pages before by now.
            if first + k <= rank or len(places) == len(self._keys):
                return Neighbours(keys[first : first + k], scores[first : first + k], exact=True)
            rank = first + k


class CopiedVectors(Copies):
    """Few vectors (N, D) of length one, without FAISS.

    They are float32: to widen float16 would take longer than to compare it. One thread does it, as BLAS's
    wait for each other whenever other work has the cores.
    """

    def __init__(self, keys: Keys, vectors: Vectors) -> None:
        super().__init__(keys)
        self._vectors = vectors
        # Of two inner products, each off by so much.
        self._margin = np.float32(2 * _ROUNDING * vectors.shape[1])

    @property
    def memory_bytes(self) -> int:
        """Memory that vectors and keys hold."""
        return self._keys.nbytes + self._vectors.nbytes

    def _vectors_at(self, places: Rows) -> Vectors:
        return self._vectors[places]

    def _reaching(self, query: Vectors, rank: int) -> Rows:
        products = np.vecdot(self._vectors, query)
        last = np.partition(products, -rank)[-rank]
        return np.flatnonzero(products >= last - self._margin)


class CoarseCopies(Copies):
    """Many vectors in 8 bits; those that come close are ranked by what is stored.

    Args:
        keys: The keys (N,) of the rows.
        rows: Which rows (N,) of `stored` are copied; they must stay where they are.
        stored: The vectors.
    """

    def __init__(self, keys: Keys, rows: Rows, stored: StoredRows) -> None:
        super().__init__(keys)
        self._rows = rows
        self._stored = stored
        blocks = [rows[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK)]
        largest = max(float(np.abs(stored.rough(block)).max()) for block in blocks)
        self._coarse = CoarseRows(stored.dim, largest)
        for block in blocks:
            self._coarse.append(stored.halves(block))

    @property
    def memory_bytes(self) -> int:
        """Memory that vectors, keys and row numbers hold."""
        return self._keys.nbytes + self._rows.nbytes + self._coarse.memory_bytes

    def _vectors_at(self, places: Rows) -> Vectors:
        return self._stored.get(self._rows[places])

    def _reaching(self, query: Vectors, rank: int) -> Rows | None:
        wanted = rank + _REACHING
        if wanted >= len(self._keys):
            return np.arange(len(self._keys))
        question = self._coarse.question(query, self._stored.error)
        use_threads(1)
        (products,), (places,) = self._coarse.index.search(question.steps[None], wanted)
        return question.reaching((products, places), rank)


def copies_of(passing: Passing, keys: Keys, stored: StoredRows) -> SearchedCopy | None:
    """Copy the stored vectors that pass in the way that is searched fastest, and time it.

    Args:
        passing: Which rows, and for what it was searched.
        keys: The keys of all rows.
        stored: The vectors; these rows must stay where they are.

    Returns:
        None where 8 bits do not tell them apart.
    """
    rows = passing.rows
    copies: SearchedCopy
    if len(rows) * stored.dim <= _RANKED:
        copies = RankedCopies(keys[rows], stored.get(rows))
    elif len(rows) * stored.dim <= WIDE:
        copies = CopiedVectors(keys[rows], stored.get(rows))
    else:
        copies = CoarseCopies(keys[rows], rows, stored)
    copies.measure(list(passing.asked))
    return copies if copies.cost < math.inf or not len(rows) else None
