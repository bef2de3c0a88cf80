"""Vector views: what all have in common, and search by cosine or by a similarity that is no inner product."""

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import wait
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from index.vectors.ann import AnnSearch, IvfPq, OperatingPoint, calibrate, sample_size
from index.vectors.cache import IncrementalCache
from index.vectors.gpu import GpuScan
from index.vectors.protocol import (
    After,
    Keys,
    Mask,
    Neighbours,
    Rows,
    Scores,
    Vectors,
    ViewName,
    best_first,
    cosines,
    has_boundary_ties,
    page_offset,
    ranked,
)
from index.vectors.rows import FilterMask, IdMap, filter_mask
from index.vectors.store import (
    MappedStore,
    ScoredRows,
    SharedStore,
    VectorStore,
    threads_for,
    use_huge_pages,
    write_header,
)
from training.evaluation.similarity import determinants, similarity

# From this share of dead rows on, the others move up.
_DEAD_SHARE: Final = 0.25
_MIN_DEAD: Final = 1000
# Rough scores this close are ranked by float64 sums.
_TIE: Final = 1e-5
# Vectors that are compared at once: their products stay in the processor's cache.
_BLOCK: Final = 4096
# Extra candidates that are ranked exactly: rounding may have put them in another order.
_SPARE: Final = 8
# Codes have 16 values for each pair of numbers.
_MIN_TRAINING_ROWS: Final = 64
# Rows that are encoded while searches wait.
_ENCODED_AT_ONCE: Final = 256
# Rows after the build are compared one by one, until they are so many or such a share of all.
_MIN_LAGGING: Final = 1000
_LAGGING_SHARE: Final = 0.01
# Codes of a collection that has grown by this share since the build are built again.
_GROWTH: Final = 0.5
_SEED: Final = 0
_MASK_BYTES: Final = 64 * 1024**2


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
    """Vectors (dim,) of one generation under integer keys; searches run concurrently, writes alone."""

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self._ids = IdMap()
        # Rows that pass the latest filters, until rows come, go or move.
        self._masks: IncrementalCache[int, FilterMask] = IncrementalCache(_MASK_BYTES)
        self._living = filter_mask(None, self._ids)
        self._lock = ReadWriteLock()
        # Changes when rows move: anything being built then fits no longer.
        self._layout = 0
        # True after a failed change: keys and rows may not fit together.
        self._inconsistent = False

    def __len__(self) -> int:
        return len(self._ids.rising)

    @property
    def memory_bytes(self) -> int:
        """Memory that the view holds, but not on a GPU."""
        return self._ids.memory_bytes + self._masks.nbytes

    @property
    def damaged(self) -> bool:
        """True if the view must be read again."""
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
            return self._ids.rising

    def vectors(self, keys: Keys) -> Vectors:
        """Return the vectors (N, D), of length one, of keys (N,)."""
        present, vectors = self.stored_vectors(keys)
        if len(present) < len(keys):
            raise KeyError(int(np.setdiff1d(keys, present)[0]))
        return vectors

    def stored_vectors(self, keys: Keys) -> tuple[Keys, Vectors]:
        """Return those of the keys (N,) that the view has, in their order, and their vectors."""
        with self._lock.reading():
            rows = self._ids.find(keys)
            present = rows >= 0
            return keys[present], self._get(rows[present])

    def search(
        self, query: Vectors, k: int, *, allowed: Keys | None = None, after: After | None = None
    ) -> Neighbours:
        """Find the `k` nearest vectors to a query (D,) of length one.

        Args:
            query: Query vector.
            k: At most this many; fewer only if fewer match.
            allowed: Search among these keys only, in rising order; None for all. Rows of it are cached: the
                array must not change.
            after: Leave out all hits up to this one.
        """
        with self._lock.reading():
            return self._nearest(query, k, self._passing(allowed), after)

    def search_many(self, queries: Vectors, k: int, *, allowed: Keys | None = None) -> list[Neighbours]:
        """Find the `k` nearest vectors to each query (Q, D) of length one, as `search` does, on all cores."""
        with self._lock.reading():
            passing = self._passing(allowed)
            threads = threads_for("search", os.getpid())
            searches = [threads.submit(self._nearest, query, k, passing, None) for query in queries]
            # Keep the lock until the last one has ended, even if others fail.
            wait(searches)
        return [one.result() for one in searches]

    def scores(self, query: Vectors, keys: Keys) -> tuple[Keys, Scores]:
        """Return the keys (N,) that the view holds, in their order, and their scores as in a search."""
        with self._lock.reading():
            rows = self._ids.find(keys)
            present = rows >= 0
            return keys[present], self._score(query, rows[present])

    @abstractmethod
    def write(self, folder: Path, stem: str, on_copied: Callable[[], None] | None = None) -> dict[str, Path]:
        """Write the view into files of this folder, by part; `on_copied` follows once the view may change.

        Raises:
            MovedError: Rows moved meanwhile.
        """

    @abstractmethod
    def read(self, files: Mapping[str, Path]) -> None:
        """Replace the view's content by the files that `write` made.

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

    def _passing(self, allowed: Keys | None) -> FilterMask:
        """Return the rows of keys; None: all."""
        if allowed is None:
            return self._living
        return self._masks.get(id(allowed), 0, partial(filter_mask, allowed, self._ids))

    def _renew_masks(self) -> None:
        self._masks.clear()
        self._living = filter_mask(None, self._ids)

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
        dead = len(self._ids.keys) - len(self._ids.rising)
        if dead > max(_MIN_DEAD, _DEAD_SHARE * len(self._ids.keys)):
            alive = self._ids.alive
            self._keep(alive)
            self._ids = IdMap(self._ids.keys[alive])
            self._layout += 1
        self._renew_masks()


class FlatView(VectorView):
    """All vectors in float32, compared with the query in NumPy, block by block.

    A k-blade is stored as an oriented orthonormal basis, so that its cosine with another is the determinant
    of their k * k dot products (ReCo's supplement, section 2).

    Args:
        dim: Length of a vector.
        blades: k, of `dim / k` numbers each; 1: vectors are compared by cosine.
        unsigned: Whether a vector and its opposite are the same, such as QUEST's normals.
    """

    def __init__(self, dim: int, blades: int = 1, *, unsigned: bool = False) -> None:
        super().__init__(dim)
        self._blades = blades
        self._unsigned = unsigned
        self._room: Vectors = np.empty((0, dim), dtype=np.float32)

    @property
    def memory_bytes(self) -> int:
        """Memory that the view holds."""
        return super().memory_bytes + self._room.nbytes

    def write(self, folder: Path, stem: str, on_copied: Callable[[], None] | None = None) -> dict[str, Path]:
        """Write the view into files of this folder, by part; see `VectorView`."""
        files = {part: folder / f"{stem}.{part}" for part in ("rows", "keys")}
        with self._lock.reading():
            with files["rows"].open("wb") as file:
                np.save(file, self._room[: len(self._ids.keys)])
            IdMap.write_keys(files["keys"], self._ids.stored)
        if on_copied is not None:
            on_copied()
        return files

    def read(self, files: Mapping[str, Path]) -> None:
        """Replace the view's content by the files that `write` made; see `VectorView`."""
        with files["rows"].open("rb") as file:
            room = np.load(file, allow_pickle=False)
        if room.dtype != np.float32 or room.ndim != 2 or room.shape[1] != self.dim:
            raise ValueError("the file holds no float32 vectors of this dimension")
        ids = IdMap.read(files["keys"], len(room))
        with self._lock.writing():
            self._room, self._ids = room, ids
            self._renew_masks()

    def _append(self, vectors: Vectors) -> None:
        first = len(self._ids.keys)
        last = first + len(vectors)
        if last > len(self._room):
            room = np.empty((max(last, 3 * first // 2), self.dim), dtype=np.float32)
            room[:first] = self._room[:first]
            self._room = room
        self._room[first:last] = self._as_stored(vectors)

    def _keep(self, alive: Mask) -> None:
        self._room = self._room[: len(alive)][alive]

    def _get(self, rows: Rows) -> Vectors:
        return self._room[rows]

    def _nearest(self, query: Vectors, k: int, passing: FilterMask, after: After | None) -> Neighbours:
        rows, rough = passing.rows, self._rough_scores(query, passing)
        fetched = k if after is None else k + after.rank
        while True:
            likely = _likely(rough, fetched)
            if after is not None:
                likely = likely[rough[likely] <= np.float32(after.score + 2 * _TIE)]
            keys, scores = best_first(self._ids.keys[rows[likely]], self._score(query, rows[likely]))
            first = page_offset(keys, scores, after)
            if first + k <= len(keys) or fetched >= len(rows):
                return Neighbours(keys[first : first + k], scores[first : first + k], exact=True)
            fetched *= 2

    def _rough_scores(self, query: Vectors, passing: FilterMask) -> Scores:
        """Return the scores of the rows that pass, summed in float32; `_score` has them exactly."""
        query, rows = self._as_stored(query[None])[0], passing.rows
        scores = np.empty(len(rows), dtype=np.float32)
        for start in range(0, len(rows), _BLOCK):
            block = slice(start, start + _BLOCK)
            # A slice needs no copy.
            vectors = (self._room[block] if passing.is_all else self._room[rows[block]])[: len(rows[block])]
            if self._blades == 1:
                scores[block] = vectors @ query
            else:
                scores[block] = similarity(self._bases(query[None]), self._bases(vectors))[0]
        return np.abs(scores) if self._unsigned else scores

    def _score(self, query: Vectors, rows: Rows) -> Scores:
        query = self._as_stored(query[None])[0]
        scores = np.empty(len(rows), dtype=np.float32)
        for start in range(0, len(rows), _BLOCK):
            block = slice(start, start + _BLOCK)
            vectors = self._room[rows[block]]
            if self._blades == 1:
                scores[block] = np.vecdot(vectors.astype(np.float64), query.astype(np.float64))
            else:
                own, others = self._bases(query[None])[0], self._bases(vectors)
                scores[block] = determinants(np.einsum("nid,jd->nij", others, own, dtype=np.float64))
        return np.abs(scores) if self._unsigned else scores

    def _as_stored(self, vectors: Vectors) -> Vectors:
        return vectors if self._blades == 1 else oriented_bases(vectors, self._blades)

    def _bases(self, vectors: Vectors) -> Vectors:
        return vectors.reshape(len(vectors), self._blades, self.dim // self._blades)


def _likely(rough: Scores, count: int) -> Rows:
    """Return the indices of the `count` best rough scores, and of those within the rounding error below."""
    if len(rough) <= count:
        return np.arange(len(rough))
    least = np.partition(rough, len(rough) - count)[len(rough) - count]
    likely: Rows = np.flatnonzero(rough >= least - 2 * _TIE)
    return likely


def oriented_bases(vectors: Vectors, blades: int) -> Vectors:
    """Return blades (N, k * D) as orthonormal bases of the same subspaces and orientations.

    Rounding and a change of length are undone by it. A blade whose vectors are not independent stays a
    basis of some subspace: its cosines mean nothing, but they are numbers.
    """
    bases: NDArray[np.float64] = vectors.reshape(len(vectors), blades, -1).astype(np.float64)
    q, r = np.linalg.qr(bases.transpose(0, 2, 1))
    signs = np.where(np.diagonal(r, axis1=1, axis2=2) < 0, -1.0, 1.0)
    oriented = (q * signs[:, None, :]).transpose(0, 2, 1)
    return np.ascontiguousarray(oriented.reshape(len(vectors), -1), dtype=np.float32)


class MovedError(Exception):
    """The row layout or the codes changed during a build or a write."""


class CosineView(VectorView):
    """Vectors that are scanned until `build` has made codes, which then name candidates for exact ranking.

    Vectors are rounded to float16 and normalised when they are read, as the catalogue's are:
    `rounded_vectors` come out exactly as `decode_vectors` has them.

    Args:
        dim: Length of a vector.
        spill: Folder on whose disk vectors are stored; None for memory.
        shared: Whether vectors in memory are those of a snapshot's file, which other processes map as well.
    """

    def __init__(self, dim: int, spill: Path | None = None, *, shared: bool = False) -> None:
        super().__init__(dim)
        self._in_memory: type[VectorStore] = SharedStore if shared else VectorStore
        self._store: VectorStore = self._in_memory(dim) if spill is None else MappedStore(dim, spill)
        self._ann: AnnSearch | None = None
        self._gpu: GpuScan | None = None
        # Locked while rows are added to codes, or codes are written; searches and other writes continue.
        self._encoding = threading.Lock()

    @property
    def memory_bytes(self) -> int:
        """Memory that vectors, keys, codes and filter masks hold, but not on a GPU."""
        codes = 0 if self._ann is None else self._ann.codes.memory_bytes
        return super().memory_bytes + self._store.memory_bytes + codes

    @property
    def name(self) -> ViewName:
        """Kind of the view: exact until something is built."""
        if self._ann is not None:
            return "mapped" if self.mapped else "ivf"
        return "exact" if self._gpu is None or self._gpu.failed else "gpu"

    @property
    def device_bytes(self) -> int:
        """Memory that vectors hold on a GPU."""
        return 0 if self._gpu is None or self._gpu.failed else self._gpu.device_bytes

    @property
    def mapped(self) -> bool:
        """Whether vectors are in files and not in memory."""
        return isinstance(self._store, MappedStore)

    @property
    def unshared(self) -> int:
        """Number of vectors that should be shared with other processes, but are not in a snapshot's file."""
        return self._store.own_rows if isinstance(self._store, SharedStore) else 0

    @property
    def damaged(self) -> bool:
        """Whether another view must be read instead of this: its files were damaged, or a change failed."""
        return self._inconsistent or self._store.damaged

    @property
    def has_pending(self) -> bool:
        """Whether so many rows came after the codes that `encode_pending` should be called."""
        if self._ann is None:
            return False
        late = len(self._store) - len(self._ann.codes)
        return late >= max(_MIN_LAGGING, _LAGGING_SHARE * len(self._store)) or self.outgrown

    @property
    def outgrown(self) -> bool:
        """Whether so many rows came after the build of the codes that there should be others."""
        return self._ann is not None and len(self._store) > (1 + _GROWTH) * self._ann.point.rows

    @property
    def operating_point(self) -> OperatingPoint | None:
        """Operating point of the PQ search with its measured recall; None for a scan."""
        return None if self._ann is None else self._ann.point

    def search_many(self, queries: Vectors, k: int, *, allowed: Keys | None = None) -> list[Neighbours]:
        """Find the `k` nearest vectors to each query (Q, D) of length one, on a GPU together if it can."""
        with self._lock.reading():
            gpu, passing = self._gpu, self._passing(allowed)
            if gpu is not None and not gpu.failed and len(queries):
                searches = gpu.nearest(queries, min(k + _SPARE, passing.count), passing)
                each = zip(queries, searches, strict=True)
                return [self._scan(query, k, passing, None, near) for query, near in each]
        return super().search_many(queries, k, allowed=allowed)

    def _nearest(self, query: Vectors, k: int, passing: FilterMask, after: After | None) -> Neighbours:
        last = k if after is None else k + after.rank
        rows = None if self._ann is None else self._ann.shortlist(query, last, passing)
        if rows is not None:
            keys, scores = ranked(query, self._ids.keys, rows, self._store.get)
            first = page_offset(keys, scores, after)
            # Where there may be others than the candidates of the codes, a scan finds them.
            if first + k <= len(keys) and not has_boundary_ties(scores, last):
                return Neighbours(keys[first : first + k], scores[first : first + k], exact=False)
        return self._scan(query, k, passing, after)

    def _scan(
        self, query: Vectors, k: int, passing: FilterMask, after: After | None, near: ScoredRows | None = None
    ) -> Neighbours:
        """Find a page of hits by a scan, on the GPU if possible; `near` are hits that it already has."""
        spare, error = _SPARE, self._store.error
        while True:
            needed = spare + (k if after is None else k + after.rank)
            if needed >= passing.count and after is None:
                likely = passing.rows
            else:
                count = min(needed, passing.count)
                if self._gpu is not None:
                    near = near or self._gpu.nearest(query[None], count, passing)[0]
                    error = self._store.error if near is None else self._gpu.error
                products, likely = near or self._store.nearest(query, count, passing)
                near = None
                if after is not None:
                    # A walk through all pages would rank the rows of all pages before, each time.
                    likely = likely[products <= np.float32(after.score) + np.float32(2 * error)]
            keys, scores = ranked(query, self._ids.keys, likely, self._store.get)
            first = page_offset(keys, scores, after)
            last = first + k
            # No row that was left out has a larger product in FAISS's scan than the last one found.
            if needed >= passing.count or (
                last < len(scores) and scores[last - 1] > scores[-1] + np.float32(2 * error)
            ):
                return Neighbours(keys[first:last], scores[first:last], exact=True)
            spare *= 4

    def build(
        self, name: ViewName = "ivf", folder: Path | None = None, stored_queries: Vectors | None = None
    ) -> bool:
        """Give the view codes while it is used; False when rows moved meanwhile or are too few to learn from.

        Args:
            name: "mapped" moves vectors to files, "ivf" into memory.
            folder: For those files.
            stored_queries: Embedded queries (Q, D) like those to come, by which recall is measured as well.

        """
        with self._lock.reading():
            source, layout, alive = self._store, self._layout, self._ids.alive
            living = np.flatnonzero(alive)
            if len(living) < _MIN_TRAINING_ROWS:
                return False
            chosen = np.random.default_rng(_SEED).choice(living, sample_size(len(living)), replace=False)
            sample = source.rounded(np.sort(chosen))
        store = source
        if self.mapped != (name == "mapped"):
            store = MappedStore(self.dim, folder) if name == "mapped" else self._in_memory(self.dim)
        codes = IvfPq.train(sample, len(living))
        if not self._copy(source, layout, len(alive), codes.add, store):
            return False
        if not isinstance(store, MappedStore):
            use_huge_pages(store.buffer)
        point = calibrate(codes, store, alive, self._lock.reading, stored_queries)
        return self._replace(source, layout, store, AnnSearch(codes, point, store), None)

    def upload(self, gpu: GpuScan) -> bool:
        """Scan by copies of all vectors on a GPU from now on; codes go. False when rows moved meanwhile.

        Raises:
            RuntimeError: The GPU does not take them.
        """
        return self._scan_memory(gpu)

    def _scan_memory(self, gpu: GpuScan | None) -> bool:
        """Scan vectors in memory, or on a GPU, from now on; False when rows moved meanwhile."""
        with self._lock.reading():
            source, layout, count = self._store, self._layout, len(self._store)
        store = self._in_memory(self.dim) if isinstance(source, MappedStore) else source
        copied = self._copy(source, layout, count, None if gpu is None else gpu.add, store)
        return copied and self._replace(source, layout, store, None, gpu)

    def _copy(
        self,
        source: VectorStore,
        layout: int,
        count: int,
        add: Callable[[Vectors], None] | None,
        store: VectorStore,
    ) -> bool:
        """Give the first rows to codes or a GPU, and to another store; False when rows moved meanwhile."""
        if add is None and store is source:
            return True
        try:
            for _, halves in source.blocks(np.ones(count, dtype=bool), partial(self._unmoved, layout)):
                if add is not None:
                    add(halves.astype(np.float32))
                if store is not source:
                    store.append(halves)
        except MovedError:
            return False
        return True

    def _replace(
        self, source: VectorStore, layout: int, store: VectorStore, ann: AnnSearch | None, gpu: GpuScan | None
    ) -> bool:
        """Search by another store, codes or GPU from now on; False when rows of the source moved."""
        with self._lock.writing():
            if self._layout != layout or self._store is not source:
                return False
            if store is not source:
                store.append(source.take(np.arange(len(store), len(source))))
            if gpu is not None:
                gpu.add(source.rounded(np.arange(len(gpu), len(source))))
            self._store, self._ann, self._gpu = store, ann, gpu
            self._renew_masks()
        return True

    def encode_pending(self) -> bool:
        """Add rows that came since to the codes; False when they are so many that there should be others."""
        with self._encoding:
            with self._lock.reading():
                ann, layout = self._ann, self._layout
            if ann is None or self.outgrown:
                return False
            while len(ann.codes) < len(self._store):
                with self._lock.writing():
                    if self._layout != layout or self._ann is not ann:
                        return True
                    start = len(ann.codes)
                    stop = min(start + _ENCODED_AT_ONCE, len(self._store))
                    ann.codes.add(self._store.rounded(np.arange(start, stop)))
                    self._renew_masks()
        return True

    def drop(self) -> bool:
        """Answer exactly from now on, from memory and by the CPU; False when rows moved meanwhile."""
        return (self.name == "exact" and not self.mapped) or self._scan_memory(None)

    def write(self, folder: Path, stem: str, on_copied: Callable[[], None] | None = None) -> dict[str, Path]:
        """Write the view into files of this folder, by part; see `VectorView`."""
        files = {part: folder / f"{stem}.{part}" for part in ("rows", "keys")}
        with self._encoding:
            with self._lock.reading():
                store, layout, count, ann = self._store, self._layout, len(self._store), self._ann
                keys = self._ids.stored
            if on_copied is not None:
                on_copied()
            if ann is not None:
                files |= {part: folder / f"{stem}.{part}" for part in ("codes", "point")}
                ann.write(files["codes"], files["point"])
        IdMap.write_keys(files["keys"], keys)
        with files["rows"].open("wb") as file:
            write_header(file, count, store.dim)
            for _, halves in store.blocks(np.ones(count, dtype=bool), partial(self._unmoved, layout)):
                file.write(halves.data)
        if isinstance(store, MappedStore | SharedStore):
            with self._lock.writing():
                self._refuse_moved(layout)
                store.move_to(files["rows"], count)
        return files

    def read(self, files: Mapping[str, Path]) -> None:
        """Replace the view's content by the files that `write` made; see `VectorView`."""
        store = self._store.fresh()
        store.read(files["rows"])
        ids = IdMap.read(files["keys"], len(store))
        ann = AnnSearch.read(files, store) if "codes" in files else None
        with self._lock.writing():
            self._store, self._ids, self._ann, self._gpu = store, ids, ann, None
            self._layout += 1
            self._renew_masks()

    @contextmanager
    def _unmoved(self, layout: int) -> Iterator[None]:
        """Hold the lock for reading; raise `MovedError` if rows have moved."""
        with self._lock.reading():
            self._refuse_moved(layout)
            yield

    def _refuse_moved(self, layout: int) -> None:
        if self._layout != layout:
            raise MovedError("vectors were moved meanwhile")

    def _append(self, vectors: Vectors) -> None:
        self._store.add(vectors)
        if self._gpu is not None:
            try:
                self._gpu.add(vectors)
            except RuntimeError as error:
                self._gpu.give_up(error)

    def _keep(self, alive: Mask) -> None:
        """Move living rows to another store and scan that; codes and the copy on a GPU go."""
        store = self._store.fresh()
        for _, halves in self._store.blocks(alive):
            store.append(halves)
        self._store, self._ann, self._gpu = store, None, None

    def _get(self, rows: Rows) -> Vectors:
        return self._store.get(rows)

    def _score(self, query: Vectors, rows: Rows) -> Scores:
        return cosines(query, self._store.get(rows))


def new_view(
    dim: int, blades: int = 1, *, unsigned: bool = False, spill: Path | None = None, shared: bool = False
) -> VectorView:
    """Return an empty view for vectors of `dim` numbers; arguments as of `FlatView` and `CosineView`."""
    if unsigned:
        return FlatView(dim, unsigned=True)
    return CosineView(dim, spill, shared=shared) if blades == 1 else FlatView(dim, blades)
