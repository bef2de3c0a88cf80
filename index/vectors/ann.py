"""Approximate search: an inverted file of PQ codes names candidates; stored vectors rank them.

A vector is rotated onto the directions that carry most of the collection's energy, and at random among
those so that each carries alike; its residual from the centroid of its list is coded in 4 bits for every two
numbers (product quantisation: Jégou, Douze and Schmid 2011; scanned in registers: André, Kermarrec and
Le Scouarnec 2015). Only lists with rows that pass a filter are probed.

A query is hard if hits are outside the first quarter of the probed lists or the first half of the candidates:
further hits may then be in other lists, or after the last candidate. A hard query is searched again with
four times as many lists, or candidates. After a build, `calibrate` measures how many lists and candidates
find the ten nearest of every calibration query.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

import faiss
import numpy as np
from numpy.typing import NDArray

from index.vectors.protocol import Mask, Rows, Vectors, cosines, rerank_depth, unit
from index.vectors.rows import Bits, FilterMask
from index.vectors.store import Guard, VectorStore, use_threads
from training.common.host import cores

# The share of energy that the rotated numbers must keep, in steps that FAISS's kernels like.
_ENERGY: Final = 0.96
_STEP: Final = 32
_SEED: Final = 0
_TRAINED_ON_A_LIST: Final = 96
# With fewer iterations, a vector in a hundred thousand is in a list far from its neighbours' (measured).
_ITERATIONS: Final = 25
_MIN_LISTS: Final = 16
_MAX_LISTS: Final = 8192
# Encoded at once: its rotated copy stays small.
_BLOCK: Final = 50_000
# FAISS's implem: a reservoir, list by list; 10 % faster for one query than its default.
_LIST_BY_LIST: Final = 11

Lists = NDArray[np.int64]
# Passing rows up to which a filtered search is a scan: about as fast, and exact.
_SCANNED_ROWS: Final = 3_000
# Factor of lists and candidates from one search to the next.
_MORE: Final = 4
# A tail hit is beyond these shares of the lists or of the candidates, and makes the search too shallow, ...
_TAIL_LISTS: Final = 1 / 4
_TAIL_CANDIDATES: Final = 1 / 2
# ... but for one in so many hits of a deep search. The first hits, at least so many, are checked.
_HITS_PER_TAIL_HIT: Final = 50
_MIN_CHECKED: Final = 20
# Minimum number of candidates for each hit.
_CANDIDATES_A_HIT: Final = 4
# Hits that an operating point is measured with. The number of lists grows with this power of the depth
# and of the inverse selectivity of a filter near the query.
MEASURED_RANK: Final = 10
_DEPTH_POWER: Final = 0.5
_MAX_DEPTH_FACTOR: Final = 256
# Passing rows are farther away than hits of all rows, where codes distinguish them less well.
_FILTERED_CANDIDATES: Final = 4
# A filter disagrees with a query if the density of passing rows near the query is below this share of its
# selectivity. Hits are then in scattered lists, and the tail hits of few lists don't show it.
_DISAGREEING: Final = 0.9
_DISAGREEING_DEPTH_FACTOR: Final = 8
# Candidates in order that each hit is compared with: rounding may hide a hit behind others.
_COMPARED_A_HIT: Final = 2
# A search for a larger share of all rows is a scan.
_MAX_CANDIDATE_SHARE: Final = 1 / 4
# Rows that a reader of codes adds to them at once.
_ADDED_AT_ONCE: Final = 16_384
# Required of calibration queries of each kind: mean recall@10, and the recall@10 of each single one.
_RECALL: Final = 0.995
_LOWEST: Final = 0.9
# Lists and candidates to try.
_LISTS: Final = (48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096, 8192)
_CANDIDATES: Final = (128, 512, 2048)
_QUERIES: Final = 300
# Noise of synthetic image queries.
_IMAGE_NOISE: Final = 0.45
# Signal, noise and modality gap of synthetic text queries.
_TEXT_SIGNAL: Final = 0.45
_TEXT_NOISE: Final = 0.4
_TEXT_GAP: Final = 0.8
# Scores this close are equal.
_TIE: Final = 1e-6
_QUERY_SEED: Final = 0


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

        `bits` are those of the selectable rows; None selects all. One thread a search: others run
        concurrently.
        """
        use_threads(1)
        library: Any = faiss
        count, near = min(candidates, len(self)), products[lists]
        scores, rows = np.empty(count, dtype=np.float32), np.empty(count, dtype=np.int64)
        chosen = {} if bits is None else {"sel": library.IDSelectorBitmap(bits)}
        parameters = library.SearchParametersIVF(nprobe=len(lists), **chosen)
        # FAISS's Python layer accepts no parameters with preassigned lists.
        query, *out = (library.swig_ptr(array) for array in (rotated, lists, near, scores, rows))
        self._inverted.search_preassigned_c(1, query, count, *out, False, parameters)
        return rows if rows[-1] >= 0 else rows[rows >= 0]

    def write(self, path: Path) -> None:
        """Write the codes into a file."""
        faiss.write_index(self._index, str(path))

    @classmethod
    def read(cls, path: Path) -> "IvfPq":
        """Read the codes that `write` put into a file."""
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
        old, lists = len(self.list_of_row), np.empty(len(self), dtype=np.int32)
        lists[:old] = self.list_of_row
        inverted = self._inverted.invlists
        for number, old_size in enumerate(self._sizes.tolist()):
            size = inverted.list_size(number)
            if size > old_size:
                lists[library.rev_swig_ptr(inverted.get_ids(number), size)[old_size:]] = number
        self.list_of_row = lists
        self._sizes += np.bincount(lists[old:], minlength=self.lists)


def _largest(values: Vectors, count: int) -> Lists:
    first = max(0, len(values) - count)
    indices = values.argpartition(first)[first:] if first else np.arange(len(values))
    return indices[values[indices].argsort()[::-1]]


def _rotation(sample: Vectors) -> tuple[int, Vectors]:
    """Return how many numbers are kept of a vector, and the matrix (kept, D) that makes them."""
    dim = sample.shape[1]
    energies, directions = np.linalg.eigh((sample.T @ sample).astype(np.float64))
    shares = np.cumsum(energies[::-1]) / energies.sum()
    needed = int(np.searchsorted(shares, _ENERGY)) + 1
    rank = min(dim, -(-needed // _STEP) * _STEP)
    rank -= rank % 2 if rank > 1 else 0
    mixed = np.linalg.qr(np.random.default_rng(_SEED).standard_normal((rank, rank)))[0]
    rotation: Vectors = np.ascontiguousarray(mixed @ directions[:, ::-1].T[:rank], dtype=np.float32)
    return rank, rotation


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """Lists and candidates of a first search, with its measured recall@10.

    Attributes:
        lists: Lists to probe; 0 if no number of them finds enough, so that everything is scanned.
        candidates: Candidates to rank exactly.
        recall: Mean recall@10 of calibration queries.
        lowest: Lowest recall@10 of a calibration query.
        queries: Number of calibration queries.
        rows: Number of rows that the codes were built of.
    """

    lists: int
    candidates: int
    recall: float
    lowest: float
    queries: int
    rows: int = 0


def read_point(path: Path) -> OperatingPoint:
    """Return the operating point that a snapshot's file holds."""
    try:
        return OperatingPoint(**json.loads(path.read_bytes()))
    except TypeError as error:
        raise ValueError("the file holds no operating point") from error


class AnnSearch:
    """Finds the rows that contain the hits of a query, or reports that a scan is needed.

    Rows that came after the codes were built are compared one by one.

    Attributes:
        scanned_rows: Passing rows up to which a filtered search is a scan.
    """

    scanned_rows = _SCANNED_ROWS

    def __init__(self, codes: IvfPq, point: OperatingPoint, store: VectorStore) -> None:
        self.codes = codes
        self.point = point
        self.store = store

    def write(self, codes: Path, point: Path) -> None:
        """Write the codes and their operating point into files."""
        self.codes.write(codes)
        point.write_text(json.dumps(asdict(self.point)))

    @classmethod
    def read(cls, files: Mapping[str, Path], store: VectorStore) -> Self:
        """Return the search that `write` put into files, by part, and encode the rows that came since.

        Raises:
            ValueError: The codes do not fit the rows.
        """
        codes, point = IvfPq.read(files["codes"]), read_point(files["point"])
        if len(codes) > len(store):
            raise ValueError("there are codes of more vectors than there are")
        # Older snapshots hold codes as they were built, without the number of rows.
        point = replace(point, rows=point.rows or len(codes))
        for start in range(len(codes), len(store), _ADDED_AT_ONCE):
            codes.add(store.rounded(np.arange(start, min(start + _ADDED_AT_ONCE, len(store)))))
        return cls(codes, point, store)

    def shortlist(self, query: Vectors, rank: int, passing: FilterMask) -> Rows | None:
        """Return rows that hold the hits of a query (D,) down to a rank; None if all must be scanned."""
        if not self.point.lists or passing.count <= max(self.scanned_rows, rank):
            return None
        rotated, products = self.codes.rotated(query)
        list_count, candidates = self._effort(rank, products, passing)
        newest = len(self.codes) + np.flatnonzero(passing.mask[len(self.codes) :])
        checked = max(rank, _MIN_CHECKED)
        while candidates <= _MAX_CANDIDATE_SHARE * len(self.store):
            lists = self.codes.nearest_lists(products, list_count, passing)
            candidate_rows = self.codes.search(rotated, products, lists, candidates, passing.bits)
            rows = np.concatenate((candidate_rows, newest))
            more_lists = more_candidates = len(rows) < min(rerank_depth(rank), passing.count)
            if not more_lists:
                near, indices = self.store.best_of(query, _COMPARED_A_HIT * rerank_depth(checked), rows)
                hits = indices[:checked]
                hits = hits[hits < len(candidate_rows)]
                more_candidates = _is_hard(hits >= _TAIL_CANDIDATES * candidates, rank)
                # After a probe of all lists no hit is in another.
                if len(lists) == list_count:
                    edge = products[lists[math.ceil(_TAIL_LISTS * list_count)]]
                    more_lists = _is_hard(
                        products[self.codes.list_of_row[candidate_rows[hits]]] <= edge, rank
                    )
                if not more_lists and not more_candidates:
                    return self._likely(query, rank, rows, near, indices)
            list_count *= _MORE if more_lists else 1
            candidates *= _MORE if more_candidates else 1
        return None

    def _effort(self, rank: int, products: Vectors, passing: FilterMask) -> tuple[int, int]:
        """Return how many lists to probe and candidates to take first, by products with all centroids."""
        deeper = max(1.0, rank / MEASURED_RANK) ** _DEPTH_POWER
        candidates = max(self.point.candidates, _CANDIDATES_A_HIT * rerank_depth(rank))
        lists = round(deeper * self.point.lists)
        if not passing.filtered:
            return lists, candidates
        density = self.codes.density(products, self.point.lists, passing)
        deeper = min(_MAX_DEPTH_FACTOR, 1 / max(density, 1 / _MAX_DEPTH_FACTOR)) ** _DEPTH_POWER
        if density < _DISAGREEING * passing.count / len(passing.mask):
            deeper *= _DISAGREEING_DEPTH_FACTOR
        return round(deeper * lists), _FILTERED_CANDIDATES * candidates

    def _likely(self, query: Vectors, rank: int, rows: Rows, products: Vectors, indices: Rows) -> Rows:
        """Return the rows that may be hits: those not clearly below the last one."""
        least = products[min(rank, len(products)) - 1] - 2 * self.store.error
        while products[-1] >= least and len(products) < len(rows):
            products, indices = self.store.best_of(query, 2 * len(products), rows)
        likely: Rows = rows[indices[products >= least]]
        return likely


def _is_hard(tail: Mask, rank: int) -> bool:
    """Return whether too many hits (H,) down to a rank are tail hits."""
    return int(np.count_nonzero(tail)) > max(0, rank - MEASURED_RANK) // _HITS_PER_TAIL_HIT


def calibrate(
    codes: IvfPq, store: VectorStore, alive: Mask, guard: Guard, stored_queries: Vectors | None = None
) -> OperatingPoint:
    """Return the smallest operating point that finds the hits of all kinds of queries among live rows.

    `stored_queries` (Q, D) are embedded texts where images are searched, or the other way.
    """
    passing = FilterMask(alive, int(np.count_nonzero(alive)), filtered=False)
    with guard():
        kinds = _made_queries(store, passing.rows)
    if stored_queries is not None and len(stored_queries):
        kinds.append(stored_queries[:_QUERIES])
    queries = np.concatenate(kinds)
    nearest = store.nearest_many(queries, MEASURED_RANK, alive, guard)
    with guard():
        vectors = store.get(nearest.ravel()).reshape(*nearest.shape, -1)
    # The scan ranked by rounded lengths: its last one need not be the last by cosine.
    last = cosines(queries[:, None], vectors).min(axis=1)
    scanned = OperatingPoint(0, 0, 1.0, 1.0, len(queries), len(codes))
    levels = [lists for lists in _LISTS if lists < codes.lists] + [codes.lists]
    for candidates in _CANDIDATES:
        for lists in levels:
            tried = replace(scanned, lists=lists, candidates=candidates)
            recalls = _recalls(AnnSearch(codes, tried, store), queries, last, passing, guard)
            split = np.cumsum([len(kind) for kind in kinds])[:-1]
            if min(float(own.mean()) for own in np.split(recalls, split)) < _RECALL:
                continue
            if recalls.min() >= _LOWEST:
                return replace(tried, recall=float(recalls.mean()), lowest=float(recalls.min()))
    return scanned


def _recalls(
    search: AnnSearch, queries: Vectors, last: Vectors, passing: FilterMask, guard: Guard
) -> Vectors:
    """Return the recall@10 (Q,) of each query, whose tenth hit scores `last`; a scan finds everything."""
    recalls = np.ones(len(queries), dtype=np.float32)
    for index, query in enumerate(queries):
        with guard():
            rows = search.shortlist(query, MEASURED_RANK, passing)
            vectors = None if rows is None else search.store.get(rows)
        if vectors is not None:
            right = np.count_nonzero(cosines(query, vectors) >= last[index] - _TIE)
            recalls[index] = min(1.0, right / MEASURED_RANK)
    return recalls


def _made_queries(store: VectorStore, living: Rows) -> list[Vectors]:
    """Return queries near stored vectors: like other images, and like texts, which are far from images."""
    random = np.random.default_rng(_QUERY_SEED)
    count = min(_QUERIES, len(living))
    chosen, first, second = (random.choice(living, count) for _ in range(3))
    own = store.get(chosen)
    images = unit(own + np.float32(_IMAGE_NOISE) * unit(store.get(first) - store.get(second)))
    gap, *noise = unit(random.standard_normal((count + 1, store.dim)).astype(np.float32))
    texts = _TEXT_SIGNAL * unit(own - own.mean(axis=0)) + _TEXT_GAP * gap + _TEXT_NOISE * np.stack(noise)
    return [images, unit(texts.astype(np.float32))]
