"""Vectors compared by cosine, float16 as in the catalogue: scanned, or found by PQ codes."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from index.vectors.ann.calibration import calibrate
from index.vectors.ann.ivf_pq import IvfPq, sample_size
from index.vectors.ann.search import AnnSearch, OperatingPoint
from index.vectors.codec import widened
from index.vectors.filter_mask import FilterMask
from index.vectors.flat_view import FlatView
from index.vectors.gpu import GpuScan
from index.vectors.id_map import IdMap, Mask, Rows
from index.vectors.protocol import After, Keys, Neighbours, Scores, Vectors, ViewName
from index.vectors.ranking import cosines, has_boundary_ties, page_offset, ranked
from index.vectors.storage.mapped import MappedStore
from index.vectors.storage.memory import MemoryStore, use_huge_pages
from index.vectors.storage.vector_store import VectorStore, write_header
from index.vectors.vector_view import VectorView

# Candidates beyond those asked for that are ranked exactly: rounding may have put them in another order.
_SPARE: Final = 8
# Codes have 16 values for each pair of numbers.
_MIN_TRAINING_ROWS: Final = 64
# Rows that are encoded while searches wait.
_ENCODED_AT_ONCE: Final = 256
# Rows after the build are compared one by one, until they are so many or such a share of all.
_MIN_LAGGING: Final = 1000
_LAGGING_SHARE: Final = 0.01
# Codes of a collection that has grown by this share since the build are built anew.
_GROWTH: Final = 0.5
_SEED: Final = 0


class MovedError(Exception):
    """The row layout or the codes changed during a build or a write."""


class CosineView(VectorView):
    """Vectors that are scanned until `build` has made codes, which then name candidates for exact ranking.

    Vectors are rounded to float16 and normalised when they are read, as the catalogue's are:
    `rounded_vectors` come out exactly as `decode_vectors` has them.

    Args:
        dim: Length of a vector.
        spill: Folder on whose disk vectors lie; None for memory.
    """

    def __init__(self, dim: int, spill: Path | None = None) -> None:
        super().__init__(dim)
        self._store: VectorStore = MemoryStore(dim) if spill is None else MappedStore(dim, spill)
        self._ann: AnnSearch | None = None
        self._gpu: GpuScan | None = None
        # Held while rows are added to codes, or codes are written; searches and other writes go on.
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
        """Whether vectors lie in files and not in memory."""
        return isinstance(self._store, MappedStore)

    @property
    def damaged(self) -> bool:
        """Whether another view must be read in place of this: its files were damaged, or a change failed."""
        return super().damaged or self._store.damaged

    @property
    def has_pending(self) -> bool:
        """Whether so many rows came after the codes that `encode_pending` should be called."""
        if self._ann is None:
            return False
        late = len(self._store) - len(self._ann.codes)
        return late >= max(_MIN_LAGGING, _LAGGING_SHARE * len(self._store)) or self._has_outgrown(self._ann)

    def _has_outgrown(self, ann: AnnSearch) -> bool:
        return len(self._store) > (1 + _GROWTH) * ann.point.rows

    @property
    def operating_point(self) -> OperatingPoint | None:
        """Operating point of the PQ search with its measured recall; None for a scan."""
        return None if self._ann is None else self._ann.point

    def search_many(self, queries: Vectors, k: int, *, allowed: Keys | None = None) -> list[Neighbours]:
        """Find the `k` nearest vectors to each query (Q, D) of length one; see `VectorView`."""
        if not len(queries):
            return []
        with self._lock.reading():
            passing = self._masks.get(allowed, self._ids)
            if self._ann is None:
                return scan_each(queries, k, passing, self._ids.keys, self._store, self._gpu)
            each = zip(queries, self._ann.shortlists(queries, k, passing), strict=True)
            return [self._ranked(query, k, passing, None, rows) for query, rows in each]

    def _nearest(self, query: Vectors, k: int, passing: FilterMask, after: After | None) -> Neighbours:
        last = k if after is None else k + after.rank
        rows = None if self._ann is None else self._ann.shortlist(query, last, passing)
        return self._ranked(query, k, passing, after, rows)

    def _ranked(
        self, query: Vectors, k: int, passing: FilterMask, after: After | None, rows: Rows | None
    ) -> Neighbours:
        """Return the page of hits among candidates of the codes; where there may be others, by a scan."""
        if rows is not None:
            last = k if after is None else k + after.rank
            keys, scores = ranked(query, self._ids.keys, rows, self._store.get)
            first = page_offset(keys, scores, after)
            if first + k <= len(keys) and not has_boundary_ties(scores, last):
                return Neighbours(keys[first : first + k], scores[first : first + k], exact=False)
        return search_exactly(query, k, passing, after, self._ids.keys, self._store, self._gpu)

    def build(
        self, name: ViewName = "ivf", folder: Path | None = None, stored_queries: Vectors | None = None
    ) -> bool:
        """Give the view codes, while searches and writes go on.

        Args:
            name: "mapped" moves vectors to files, "ivf" into memory.
            folder: For those files.
            stored_queries: Embedded queries (Q, D) like those to come, by which recall is measured as well.

        Returns:
            False when rows moved meanwhile, or there are too few to learn from.
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
            store = MappedStore(self.dim, folder) if name == "mapped" else MemoryStore(self.dim)
        codes = IvfPq.train(sample, len(living))
        if not self._copy(source, layout, len(alive), codes.add, store):
            return False
        if isinstance(store, MemoryStore):
            use_huge_pages(store.held)
        point = calibrate(codes, store, alive, self._lock.reading, stored_queries)
        return self._replace(source, layout, store, AnnSearch(codes, point, store), None)

    def upload(self, gpu: GpuScan) -> bool:
        """Scan by copies of all vectors on a GPU from now on; codes go. False when rows moved meanwhile.

        Raises:
            RuntimeError: The GPU does not take them.
        """
        with self._lock.reading():
            source, layout, count = self._store, self._layout, len(self._store)
        store = source if isinstance(source, MemoryStore) else MemoryStore(self.dim)
        copied = self._copy(source, layout, count, gpu.add, store)
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
        try:
            for _, halves in source.blocks(np.ones(count, dtype=bool), partial(self._unmoved, layout)):
                if add is not None:
                    add(widened(halves))
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
                store.append(source.halves(np.arange(len(store), len(source))))
            if gpu is not None:
                gpu.add(source.rounded(np.arange(len(gpu), len(source))))
            self._store, self._ann, self._gpu = store, ann, gpu
            self._masks.clear()
        return True

    def encode_pending(self) -> bool:
        """Add rows that came since to the codes; False when they are so many that there should be others."""
        with self._encoding:
            with self._lock.reading():
                ann, layout = self._ann, self._layout
            if ann is None or self._has_outgrown(ann):
                return False
            while len(ann.codes) < len(self._store):
                with self._lock.writing():
                    if self._layout != layout or self._ann is not ann:
                        return True
                    start = len(ann.codes)
                    stop = min(start + _ENCODED_AT_ONCE, len(self._store))
                    ann.codes.add(self._store.rounded(np.arange(start, stop)))
                    self._masks.clear()
        return True

    def drop(self) -> bool:
        """Answer exactly from now on, with all vectors in memory and by the CPU; searches go on meanwhile.

        Returns:
            False when rows moved meanwhile.
        """
        if self.name == "exact" and not self.mapped:
            return True
        with self._lock.reading():
            source, layout, count = self._store, self._layout, len(self._store)
        store = MemoryStore(self.dim) if self.mapped else source
        copied = store is source or self._copy(source, layout, count, None, store)
        return copied and self._replace(source, layout, store, None, None)

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
        if isinstance(store, MappedStore):
            with self._lock.writing():
                self._refuse_moved(layout)
                store.move_to(files["rows"], count)
        return files

    def read(self, files: Mapping[str, Path]) -> None:
        """Take what `write` put into files in place of what the view holds; see `VectorView`."""
        store = self._store.fresh()
        store.read(files["rows"])
        ids = IdMap.read(files["keys"], len(store))
        ann = AnnSearch.read(files, store) if "codes" in files else None
        with self._lock.writing():
            self._store, self._ids, self._ann, self._gpu = store, ids, ann, None
            self._layout += 1
            self._masks.clear()

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


def new_view(dim: int, blades: int = 1, *, unsigned: bool = False, spill: Path | None = None) -> VectorView:
    """Return an empty view for vectors of `dim` numbers; arguments as of `FlatView` and `CosineView`."""
    if unsigned:
        return FlatView(dim, unsigned=True)
    return CosineView(dim, spill) if blades == 1 else FlatView(dim, blades)


def search_exactly(
    query: Vectors,
    k: int,
    passing: FilterMask,
    after: After | None,
    keys: Keys,
    rows: VectorStore,
    gpu: GpuScan | None = None,
) -> Neighbours:
    """Find a page of hits by a scan, on the GPU if it can; see `VectorView.search`.

    `keys` are those of all rows (N,).
    """
    spare, error = _SPARE, rows.error
    while True:
        wanted = spare + (k if after is None else k + after.rank)
        if wanted >= passing.count and after is None:
            likely = passing.rows
        else:
            count = min(wanted, passing.count)
            near = None if gpu is None else gpu.nearest(query[None], count, passing)[0]
            if gpu is not None and near is not None:
                error = gpu.error
            products, likely = near or rows.nearest(query, count, passing)
            if after is not None:
                # A walk through all pages would rank the rows of all pages before, each time.
                likely = likely[products <= np.float32(after.score) + np.float32(2 * error)]
        found, scores = ranked(query, keys, likely, rows.get)
        first = page_offset(found, scores, after)
        if wanted >= passing.count or _is_certain(scores, first + k, error):
            return Neighbours(found[first : first + k], scores[first : first + k], exact=True)
        spare *= 4


def scan_each(
    queries: Vectors,
    k: int,
    passing: FilterMask,
    keys: Keys,
    rows: VectorStore,
    gpu: GpuScan | None = None,
) -> list[Neighbours]:
    """Find the `k` nearest vectors to each query (Q, D) by one scan; arguments as in `search_exactly`."""
    count = min(k + _SPARE, passing.count)
    near: list[Rows | None] = [None] * len(queries)
    if gpu is not None:
        near = [None if found is None else found[1] for found in gpu.nearest(queries, count, passing)]
    left = [place for place, found in enumerate(near) if found is None]
    error = rows.error if gpu is None or len(left) == len(near) else gpu.error
    if left:
        scanned = rows.nearest_many(queries[left], count, passing.mask)
        for place, found in zip(left, scanned, strict=True):
            near[place] = found
    hits = []
    for query, likely in zip(queries, near, strict=True):
        assert likely is not None
        found, scores = ranked(query, keys, likely, rows.get)
        if len(found) >= passing.count or _is_certain(scores, k, error):
            hits.append(Neighbours(found[:k], scores[:k], exact=True))
        else:
            hits.append(search_exactly(query, k, passing, None, keys, rows, gpu))
    return hits


def _is_certain(scores: Scores, last: int, error: float) -> bool:
    """Say whether no row that was not found can rank before the `last` of those found, best first."""
    # No row left out has a larger product in FAISS's scan than the last one found.
    margin = np.float32(2 * error)
    return last < len(scores) and bool(scores[last - 1] > scores[-1] + margin)
