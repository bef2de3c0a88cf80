"""Short codes of vectors in an inverted file, which name candidates for exact ranking.

A vector is rotated onto the directions that carry most of the collection's energy, rotated among those at
random so that each carries alike, and its distance from the centre of its list coded in 4 bits for every two
numbers (product quantisation: Jégou, Douze and Schmid 2011; scanned in registers: André, Kermarrec and
Le Scouarnec 2015). Measured against graphs (HNSW) of 8-bit numbers it was faster, more exact at a million
vectors, twenty times quicker to build and half as large.
"""

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import faiss
import numpy as np

from index.vectors.flat import FlatCodes
from index.vectors.positions import Rows
from index.vectors.protocol import Vectors
from index.vectors.threads import cores, use_threads

# The share of energy that the rotated numbers must keep.
_ENERGY: Final = 0.96
# Dimensions come in steps that FAISS's kernels like.
_STEP: Final = 32
_SEED: Final = 0
_TRAINED_ON_A_LIST: Final = 96
_FEWEST_LISTS: Final = 16
_MOST_LISTS: Final = 8192
# Encoded at once: its rotated copy stays small.
_BLOCK: Final = 50_000
# Settings that are kept, with the selectors in them.
_REMEMBERED: Final = 16
# How FAISS scans lists: one after the other for each query, into a reservoir. For one query this takes a
# tenth to a fifth less than what it would choose by itself, and for many as long (measured).
_LIST_BY_LIST: Final = 11
# Queries times rows from which on several threads are worth their start.
_WORTH_THREADS: Final = 2_000_000


def list_count(count: int) -> int:
    """Return how many lists suit so many vectors: about one and a half times the root, a power of two."""
    lists = 2 ** round(float(np.log2(max(1.0, 1.5 * count**0.5))))
    return int(min(max(lists, _FEWEST_LISTS), _MOST_LISTS))


def _trained_lists(count: int, sample: int) -> int:
    """Return how many lists codes of so many vectors get from a sample of some."""
    return min(list_count(count), max(1, sample // _TRAINED_ON_A_LIST * 2))


def sample_size(count: int) -> int:
    """Return how many of so many vectors `Codes` should be trained on."""
    return min(count, _TRAINED_ON_A_LIST * list_count(count))


class Codes:
    """Codes by row; its owner sees to it that nobody searches while rows are added."""

    def __init__(self, index: Any) -> None:
        self._index = index
        library: Any = faiss
        self._inverted: Any = library.downcast_index(index.index)
        self._inverted.implem = _LIST_BY_LIST
        # To make them takes as long as to search some lists.
        self._parameters = lru_cache(_REMEMBERED)(_parameters)

    @classmethod
    def train(cls, sample: Vectors, count: int) -> "Codes":
        """Learn rotation, lists and codes from a sample (S, D) for about `count` vectors."""
        use_threads(cores() if count >= _BLOCK else 1)
        kept, rotation = _rotation(sample)
        library: Any = faiss
        transform = library.LinearTransform(sample.shape[1], kept, False)
        library.copy_array_to_vector(rotation.ravel(), transform.A)
        transform.is_trained = True
        lists = _trained_lists(count, len(sample))
        inverted = library.IndexIVFPQFastScan(
            library.IndexFlatIP(kept), kept, lists, kept // 2, 4, faiss.METRIC_INNER_PRODUCT
        )
        inverted.by_residual = True
        inverted.cp.spherical = True
        inverted.cp.niter = 8
        inverted.cp.seed = _SEED
        inverted.cp.min_points_per_centroid = inverted.pq.cp.min_points_per_centroid = 1
        inverted.cp.max_points_per_centroid = _TRAINED_ON_A_LIST
        index = library.IndexPreTransform(transform, inverted)
        index.train(sample)
        return cls(index)

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._index.ntotal)

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return int(self._index.d)

    @property
    def index(self) -> Any:
        """FAISS's index of the codes, the same as long as this lives."""
        return self._index

    @property
    def lists(self) -> int:
        """Number of lists."""
        return int(self._inverted.nlist)

    @property
    def outgrown(self) -> bool:
        """Whether so many rows would get more than twice as many lists."""
        return _trained_lists(len(self), sample_size(len(self))) > 2 * self.lists

    @property
    def memory_bytes(self) -> int:
        """Memory that codes, row numbers and centres hold."""
        return int(len(self) * (self._inverted.code_size + 8) + self.lists * self._inverted.d * 4)

    def add(self, vectors: Vectors) -> None:
        """Append vectors (N, D)."""
        use_threads(cores() if len(vectors) >= _BLOCK else 1)
        for start in range(0, len(vectors), _BLOCK):
            self._index.add(np.ascontiguousarray(vectors[start : start + _BLOCK]))

    def search(self, queries: Vectors, lists: int, candidates: int, threads: int | None = None) -> Rows:
        """Return the likely nearest rows (Q, C) to queries (Q, D), likeliest first; -1 for none.

        Args:
            queries: What to search for.
            lists: How many lists to scan.
            candidates: How many rows for each query.
            threads: On how many; by default on all cores where that is worth it.
        """
        use_threads(threads or (cores() if len(queries) * len(self) >= _WORTH_THREADS else 1))
        return self._search(queries, lists, candidates)[1]

    def with_more(self, vectors: Vectors, selector: Any = None) -> Callable[[Vectors, int, int], Rows]:
        """Return a `search` by the codes of all rows and of vectors (N, D), as if these were the next rows.

        It goes by one thread, as others search meanwhile.

        Args:
            vectors: As they were rounded.
            selector: FAISS's selector of the rows that may be found; None for all.
        """
        others = Codes(self._empty())
        others.add(vectors)

        def search(queries: Vectors, lists: int, candidates: int) -> Rows:
            use_threads(1)
            products, rows = self._search(queries, lists, candidates, selector)
            more, added = others._search(queries, lists, candidates)
            rows = np.concatenate((rows, np.where(added < 0, added, added + len(self))), axis=1)
            best = np.argsort(-np.concatenate((products, more), axis=1), axis=1)[:, :candidates]
            found: Rows = np.take_along_axis(rows, best, axis=1)
            return found

        return search

    def _empty(self) -> Any:
        """Return FAISS's index of no rows that codes vectors in the same way, as long as this lives."""
        library: Any = faiss
        pq = self._inverted.pq
        inverted = library.IndexIVFPQFastScan(
            self._inverted.quantizer, self._inverted.d, self.lists, pq.M, pq.nbits, faiss.METRIC_INNER_PRODUCT
        )
        inverted.by_residual, inverted.pq, inverted.is_trained = True, pq, True
        index = library.IndexPreTransform(self._index.chain.at(0), inverted)
        index.is_trained = True
        return index

    def _search(
        self, queries: Vectors, lists: int, candidates: int, selector: Any = None
    ) -> tuple[Vectors, Rows]:
        """Return inner products by the codes and the rows (Q, C)."""
        parameters = self._parameters(min(lists, self.lists), selector)
        found: tuple[Vectors, Rows] = self._index.search(
            queries, min(candidates, len(self)), params=parameters
        )
        return found

    def flat(self, sample: Vectors) -> FlatCodes:
        """Return no codes yet, of the same numbers but in no lists, learnt from a sample (S, D)."""
        return FlatCodes(self._index, sample)

    def write(self, path: Path) -> None:
        """Write the codes into a file."""
        faiss.write_index(self._index, str(path))

    @classmethod
    def read(cls, path: Path) -> "Codes":
        """Return what `write` put into a file.

        Raises:
            ValueError: It holds no such codes.
        """
        index: Any = faiss.read_index(str(path))
        if not isinstance(index, faiss.IndexPreTransform) or not isinstance(
            faiss.downcast_index(index.index), faiss.IndexIVFPQFastScan
        ):
            raise ValueError("the file holds no codes of vectors")
        return cls(index)


def _parameters(lists: int, selector: Any) -> Any:
    library: Any = faiss
    inverted = library.SearchParametersIVF(nprobe=lists, sel=selector)
    return library.SearchParametersPreTransform(index_params=inverted)


def _rotation(sample: Vectors) -> tuple[int, Vectors]:
    """Return how many numbers are kept of a vector, and the matrix (kept, D) that makes them."""
    dim = sample.shape[1]
    energies, directions = np.linalg.eigh((sample.T @ sample).astype(np.float64))
    shares = np.cumsum(energies[::-1]) / energies.sum()
    needed = int(np.searchsorted(shares, _ENERGY)) + 1
    kept = min(dim, -(-needed // _STEP) * _STEP)
    kept -= kept % 2 if kept > 1 else 0
    mixed = np.linalg.qr(np.random.default_rng(_SEED).standard_normal((kept, kept)))[0]
    rotation: Vectors = np.ascontiguousarray(mixed @ directions[:, ::-1].T[:kept], dtype=np.float32)
    return kept, rotation
