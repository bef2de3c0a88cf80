"""An inverted file of PQ codes, which names candidates for exact ranking.

A vector is rotated onto the directions that carry most of the collection's energy, and at random among
those so that each carries alike; its residual from the centroid of its list is coded in 4 bits for every two
numbers (product quantisation: Jégou, Douze and Schmid 2011; scanned in registers: André, Kermarrec and
Le Scouarnec 2015). Only lists with rows that pass a filter are probed.
"""

from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import faiss
import numpy as np
from numpy.typing import NDArray

from index.vectors.filter_mask import Bits, FilterMask
from index.vectors.id_map import Rows
from index.vectors.protocol import Vectors
from index.vectors.threads import cores, use_threads

# The share of energy that the rotated numbers must keep, in steps that FAISS's kernels like.
_ENERGY: Final = 0.96
_STEP: Final = 32
_SEED: Final = 0
_TRAINED_ON_A_LIST: Final = 96
# With fewer iterations, a vector in a hundred thousand lies in a list far from its neighbours' (measured).
_ITERATIONS: Final = 25
_MIN_LISTS: Final = 16
_MAX_LISTS: Final = 8192
# Encoded at once: its rotated copy stays small.
_BLOCK: Final = 50_000
# FAISS's implem: a reservoir, list by list; 10 % faster for one query than its default.
_LIST_BY_LIST: Final = 11

Lists = NDArray[np.int64]


def list_count(count: int) -> int:
    """Return how many lists suit so many vectors: about one and a half times the root, a power of two."""
    lists = 2 ** round(float(np.log2(max(1.0, 1.5 * count**0.5))))
    return int(min(max(lists, _MIN_LISTS), _MAX_LISTS))


def sample_size(count: int) -> int:
    """Return how many of so many vectors `IvfPq` should be trained on."""
    return min(count, _TRAINED_ON_A_LIST * list_count(count))


class IvfPq:
    """PQ codes by row; its owner keeps searches and additions apart.

    Attributes:
        lists: Number of lists.
        list_of_row: The list (N,) that each row is in.
    """

    def __init__(self, index: Any) -> None:
        library: Any = faiss
        self._index = index
        self._inverted: Any = library.downcast_index(index.index)
        self._inverted.implem = _LIST_BY_LIST
        self.lists = int(self._inverted.nlist)
        transform = library.downcast_VectorTransform(index.chain.at(0))
        rotation = library.vector_to_array(transform.A).reshape(transform.d_out, transform.d_in)
        # Faster by rows.
        self._rotation: Vectors = np.ascontiguousarray(rotation.T)
        centroids = self._inverted.quantizer.reconstruct_n(0, self.lists)
        self._centroids: Vectors = np.ascontiguousarray(centroids.T)
        self.list_of_row: NDArray[np.int32] = np.empty(0, dtype=np.int32)
        self._sizes: NDArray[np.int64] = np.zeros(self.lists, dtype=np.int64)
        self._take_lists()

    @classmethod
    def train(cls, sample: Vectors, count: int) -> "IvfPq":
        """Learn rotation, lists and codes from a sample (S, D) for about `count` vectors."""
        use_threads(cores() if count >= _BLOCK else 1)
        kept, rotation = _rotation(sample)
        library: Any = faiss
        transform = library.LinearTransform(sample.shape[1], kept, False)
        library.copy_array_to_vector(rotation.ravel(), transform.A)
        transform.is_trained = True
        lists = min(list_count(count), max(1, len(sample) // _TRAINED_ON_A_LIST * 2))
        inverted = library.IndexIVFPQFastScan(
            library.IndexFlatIP(kept), kept, lists, kept // 2, 4, faiss.METRIC_INNER_PRODUCT
        )
        inverted.by_residual = True
        inverted.cp.spherical = True
        inverted.cp.niter = _ITERATIONS
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
    def memory_bytes(self) -> int:
        """Memory that codes, row numbers and centroids hold."""
        return int(len(self) * (self._inverted.code_size + 12) + self.lists * self._inverted.d * 8)

    def add(self, vectors: Vectors) -> None:
        """Append vectors (N, D)."""
        use_threads(cores() if len(vectors) >= _BLOCK else 1)
        for start in range(0, len(vectors), _BLOCK):
            self._index.add(np.ascontiguousarray(vectors[start : start + _BLOCK]))
        self._take_lists()

    def rotated(self, queries: Vectors) -> tuple[Vectors, Vectors]:
        """Return queries (..., D) rotated as the codes are, and their inner products with all centroids."""
        rotated: Vectors = queries @ self._rotation
        return rotated, rotated @ self._centroids

    def density(self, products: Vectors, count: int, passing: FilterMask) -> float:
        """Return the share of rows near a query that pass, by products with all centroids (lists,).

        The smallest of three shares: in all `count` nearest lists, in the nearest quarter of these, and in
        the nearest sixteenth.
        """
        lists = _largest(products, count)
        shares = self._counts(passing)[lists].cumsum() / self._sizes[lists].cumsum().clip(min=1)
        return float(min(shares[len(lists) // 16], shares[len(lists) // 4], shares[-1]))

    def nearest_lists(self, products: Vectors, count: int, passing: FilterMask) -> Lists:
        """Return the nearest lists to a query, at most `count`, with a row that passes; nearest first."""
        if passing.filtered and not (counts := self._counts(passing)).all():
            products = np.where(counts > 0, products, np.float32(-np.inf))
            # FAISS needs at least one list, even if none has a passing row.
            count = max(1, min(count, int(np.count_nonzero(counts))))
        return _largest(products, count)

    def search(
        self, rotated: Vectors, products: Vectors, lists: Lists, candidates: int, bits: Bits | None
    ) -> Rows:
        """Return the likely nearest rows of some lists, at most so many candidates, likeliest first.

        `bits` are those of the selectable rows; None selects all. One thread a search: others run beside it.
        """
        use_threads(1)
        library: Any = faiss
        wanted, near = min(candidates, len(self)), products[lists]
        found, rows = np.empty(wanted, dtype=np.float32), np.empty(wanted, dtype=np.int64)
        parameters = _probing(len(lists), bits)
        # FAISS's Python layer takes no parameters with lists that are given.
        query, *out = (library.swig_ptr(array) for array in (rotated, lists, near, found, rows))
        self._inverted.search_preassigned_c(1, query, wanted, *out, False, parameters)
        return rows if rows[-1] >= 0 else rows[rows >= 0]

    def search_each(
        self, queries: Vectors, rows: Any, lists: int, candidates: int, count: int, bits: Bits | None
    ) -> tuple[Vectors, Rows]:
        """Return the largest inner products (Q, count) with candidates of each query (Q, D), and their rows.

        `rows` is FAISS's index of all rows; places without a row hold -1. `bits` as in `search`. All cores
        search: a batch takes a third of the time of its queries one by one (measured).
        """
        use_threads(cores())
        library: Any = faiss
        # The constructor refuses an index with rows that have no codes yet, so it is set afterwards.
        refined = library.IndexRefine(self._index, self._index)
        refined.refine_index = rows
        probed = _probing(min(lists, self.lists), bits)
        codes = library.SearchParametersPreTransform(index_params=probed)
        parameters = library.IndexRefineSearchParameters(k_factor=candidates / count, base_index_params=codes)
        found: tuple[Vectors, Rows] = refined.search(queries, count, params=parameters)
        return found

    def write(self, path: Path) -> None:
        """Write the codes into a file."""
        faiss.write_index(self._index, str(path))

    @classmethod
    def read(cls, path: Path) -> "IvfPq":
        """Read the codes that `write` put into a file.

        Raises:
            ValueError: The file holds no such codes.
        """
        index: Any = faiss.read_index(str(path))
        if not isinstance(index, faiss.IndexPreTransform):
            raise ValueError("the file holds no inverted file of PQ codes")
        return cls(index)

    def _counts(self, passing: FilterMask) -> NDArray[np.int64]:
        """Return how many rows of each list pass a filter."""
        if passing.list_counts is None:
            # Rows are found and taken four times as fast as the lists are selected by the mask (measured).
            rows = np.flatnonzero(passing.mask[: len(self.list_of_row)])
            passing.list_counts = np.bincount(self.list_of_row.take(rows), minlength=self.lists)
        return passing.list_counts

    def _take_lists(self) -> None:
        """Read the lists of the rows that were added; FAISS appends them to the lists."""
        library: Any = faiss
        known, lists = len(self.list_of_row), np.empty(len(self), dtype=np.int32)
        lists[:known] = self.list_of_row
        inverted = self._inverted.invlists
        for number, known_size in enumerate(self._sizes.tolist()):
            size = inverted.list_size(number)
            if size > known_size:
                lists[library.rev_swig_ptr(inverted.get_ids(number), size)[known_size:]] = number
        self.list_of_row = lists
        self._sizes += np.bincount(lists[known:], minlength=self.lists)


def _probing(lists: int, bits: Bits | None) -> Any:
    """Return FAISS's parameters of a search of so many lists for the rows that bits select."""
    if bits is None:
        return _parameters(lists)
    library: Any = faiss
    return library.SearchParametersIVF(nprobe=lists, sel=library.IDSelectorBitmap(bits))


@lru_cache(maxsize=64)
def _parameters(lists: int) -> Any:
    # To create them takes a quarter as long as a search.
    library: Any = faiss
    return library.SearchParametersIVF(nprobe=lists)


def _largest(values: Vectors, count: int) -> Lists:
    """Return the places of the `count` largest values (N,), largest first."""
    first = max(0, len(values) - count)
    places = values.argpartition(first)[first:] if first else np.arange(len(values))
    return places[values[places].argsort()[::-1]]


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
