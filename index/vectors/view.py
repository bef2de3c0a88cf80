"""Vectors compared by cosine, float16 as in the catalogue: scanned, or found by PQ codes."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from index.vectors.ann.calibration import calibrate
from index.vectors.ann.files import NO_CODES, BuiltCodes, copy_codes, keep_codes, read_codes, write_codes
from index.vectors.ann.ivf_pq import IvfPq, sample_size
from index.vectors.ann.search import AnnSearch, OperatingPoint
from index.vectors.exact_search import scan_each, search_exactly
from index.vectors.filter_mask import FilterMask, FilterMasks
from index.vectors.id_map import IdMap
from index.vectors.lock import ReadWriteLock
from index.vectors.protocol import After, Keys, Neighbours, Vectors, ViewName
from index.vectors.ranking import Scores, cosines, has_boundary_ties, page_offset, ranked, ranked_many
from index.vectors.storage.faiss_rows import write_header
from index.vectors.storage.gpu import GpuScan
from index.vectors.storage.mapped import MappedStore
from index.vectors.storage.memory import MemoryStore
from index.vectors.storage.scratch import Scratch
from index.vectors.storage.vector_store import VectorStore

# From this share of dead rows on, the others move up.
_DEAD_SHARE: Final = 0.25
_MIN_DEAD: Final = 1000
# Codes have 16 values for each pair of numbers.
_MIN_TRAINING_ROWS: Final = 64
# Rows that are learnt or written while appending waits.
_BLOCK: Final = 16_384
# Rows that codes learn while searches wait.
_LEARNT_AT_ONCE: Final = 256
# Rows after the build are compared one by one, until they are so many or such a share of all.
_MIN_LAGGING: Final = 1000
_LAGGING_SHARE: Final = 0.01
# Codes of a collection that has grown by this share since the build are built anew.
_GROWTH: Final = 0.5
_SEED: Final = 0


class MovedError(Exception):
    """The row layout or the codes changed during a build or a write."""


class CosineView:
    """All vectors of one generation; searches run beside each other, writes alone.

    It answers exactly until `build` has given it codes, which then name candidates for exact ranking.

    Args:
        dim: Length of a vector.
        spill: Folder on whose disk vectors lie; None for memory.
        scratch: Shared by all views of a process.
    """

    def __init__(self, dim: int, spill: Path | None = None, scratch: Scratch | None = None) -> None:
        self._scratch = scratch or Scratch()
        in_memory = MemoryStore(dim, self._scratch)
        self._store: VectorStore = in_memory if spill is None else MappedStore(dim, spill, self._scratch)
        self._ids = IdMap()
        self._lock = ReadWriteLock()
        self._ann: AnnSearch | None = None
        self._built: BuiltCodes = NO_CODES
        self._gpu: GpuScan | None = None
        # Changes when rows move: anything being built then fits no longer.
        self._layout = 0
        # Whether keys and rows may not fit together after a failed change.
        self._inconsistent = False
        self._masks = FilterMasks()

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return self._store.dim

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self._ids)

    @property
    def memory_bytes(self) -> int:
        """Memory that vectors, keys, codes and filter masks hold, but not on a GPU."""
        codes = 0 if self._ann is None else self._ann.codes.memory_bytes
        return self._store.memory_bytes + self._ids.memory_bytes + self._masks.memory_bytes + codes

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
        return self._inconsistent or self._store.damaged

    @property
    def has_pending(self) -> bool:
        """Whether so many rows came after the codes that `encode_pending` should be called."""
        if self._ann is None:
            return False
        late = len(self._store) - len(self._ann.codes)
        return late >= max(_MIN_LAGGING, _LAGGING_SHARE * len(self._store)) or self._needs_retraining

    @property
    def _needs_retraining(self) -> bool:
        return len(self._store) > (1 + _GROWTH) * self._built.rows

    @property
    def operating_point(self) -> OperatingPoint | None:
        """Operating point of the PQ search with its measured recall; None for a scan."""
        return None if self._ann is None else self._ann.point

    def add(self, keys: Keys, vectors: Vectors) -> None:
        """Put in vectors (N, D) under different keys (N,); see `VectorView`.

        They are rounded to float16 and made of length one when they are read, as the catalogue's are:
        `rounded_vectors` come out exactly as `decode_vectors` has them.
        """
        with self._changing():
            self._store.add(vectors)
            if self._gpu is not None:
                try:
                    self._gpu.add(vectors)
                except RuntimeError as error:
                    self._gpu.give_up(error)
            self._ids.append(keys)
            self._changed()

    def remove(self, keys: Keys) -> None:
        """Take out the vectors of these keys; see `VectorView`."""
        with self._changing():
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
            return self._store.get(rows)

    def search(
        self, query: Vectors, k: int, *, allowed: Keys | None = None, after: After | None = None
    ) -> Neighbours:
        """Find the `k` nearest vectors to a query (D,) of length one; see `VectorView`.

        The rows of `allowed` are kept as long as the same array is used: it must not be changed.
        """
        with self._lock.reading():
            return self._nearest(query, k, self._masks.get(allowed, self._ids), after)

    def scores(self, query: Vectors, keys: Keys) -> tuple[Keys, Scores]:
        """Return the keys (N,) that the view holds, and their scores; see `VectorView`."""
        with self._lock.reading():
            rows, known = self._ids.find(keys)
            return keys[known], cosines(query, self._store.get(rows[known]))

    def search_many(self, queries: Vectors, k: int, *, allowed: Keys | None = None) -> list[Neighbours]:
        """Find the `k` nearest vectors to each query (Q, D) of length one; see `VectorView`."""
        if not len(queries):
            return []
        with self._lock.reading():
            passing = self._masks.get(allowed, self._ids)
            if self._ann is None:
                return scan_each(queries, k, passing, self._ids.keys, self._store)
            if not passing.is_all:
                return [self._nearest(query, k, passing) for query in queries]
            shortlists = self._ann.shortlists(queries, k, passing)
            width = max((len(rows) for rows in shortlists if rows is not None), default=0)
            padded = np.full((len(queries), width), -1, dtype=np.int64)
            for place, rows in enumerate(shortlists):
                if rows is not None:
                    padded[place, : len(rows)] = rows
            found = ranked_many(queries, self._ids.keys, padded, self._store.get)
            return [
                Neighbours(one.keys[:k], one.scores[:k], exact=False)
                if k <= len(one.keys) and not has_boundary_ties(one.scores, k)
                else self._scan(query, k, passing, None)
                for query, one in zip(queries, found, strict=True)
            ]

    def _nearest(self, query: Vectors, k: int, passing: FilterMask, after: After | None = None) -> Neighbours:
        """Return the page of hits among candidates of the codes; where there may be others, by a scan."""
        last = k if after is None else k + after.rank
        rows = None if self._ann is None else self._ann.shortlist(query, last, passing)
        if rows is not None:
            keys, scores = ranked(query, self._ids.keys, rows, self._store.get)
            first = page_offset(keys, scores, after)
            if first + k <= len(keys) and not has_boundary_ties(scores, last):
                return Neighbours(keys[first : first + k], scores[first : first + k], exact=False)
        return self._scan(query, k, passing, after)

    def _scan(self, query: Vectors, k: int, passing: FilterMask, after: After | None) -> Neighbours:
        near = None if self._gpu is None else self._gpu.nearest
        return search_exactly(query, k, passing, after, self._ids.keys, self._store, near)

    def build(
        self, name: ViewName = "ivf", folder: Path | None = None, stored_queries: Vectors | None = None
    ) -> bool:
        """Give the view codes, while searches and writes go on.

        Args:
            name: "mapped" moves vectors to files, "ivf" into memory.
            folder: For those files and that of the codes.
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
            in_memory = MemoryStore(self.dim, self._scratch)
            store = MappedStore(self.dim, folder, self._scratch) if name == "mapped" else in_memory
        codes = IvfPq.train(sample, len(living))
        for start in range(0, len(alive), _BLOCK):
            with self._lock.reading():
                if self._layout != layout:
                    return False
                vectors = source.rounded(np.arange(start, min(start + _BLOCK, len(alive))))
            codes.add(vectors)
            if store is not source:
                store.add(vectors)
        if isinstance(store, MemoryStore):
            store.use_huge_pages()
        point = calibrate(codes, store, alive, self._lock.reading, stored_queries)
        file = None if folder is None else keep_codes(codes, folder)
        with self._lock.writing():
            if self._layout != layout or self._store is not source:
                return False
            if store is not source:
                store.add(source.rounded(np.arange(len(store), len(source))))
            self._store, self._ann = store, AnnSearch(codes, point, store)
            self._built, self._gpu = BuiltCodes(file, len(codes)), None
            self._masks.clear()
        return True

    def encode_pending(self) -> bool:
        """Have codes learn the rows that came since, while searches and writes go on.

        Returns:
            False when they are so many that there should be other codes.
        """
        with self._lock.reading():
            ann, layout = self._ann, self._layout
        if ann is None or self._needs_retraining:
            return False
        while len(ann.codes) < len(self._store):
            with self._lock.writing():
                if self._layout != layout or self._ann is not ann:
                    return True
                start = len(ann.codes)
                stop = min(start + _LEARNT_AT_ONCE, len(self._store))
                ann.codes.add(self._store.rounded(np.arange(start, stop)))
                self._masks.clear()
        return True

    def upload(self, gpu: GpuScan) -> bool:
        """Scan by copies of all vectors on a GPU from now on; codes go.

        Returns:
            False when rows moved meanwhile.

        Raises:
            RuntimeError: The GPU does not take them.
        """
        with self._lock.reading():
            source, layout = self._store, self._layout
        store = source if isinstance(source, MemoryStore) else MemoryStore(self.dim, self._scratch)
        for start in range(0, len(source), _BLOCK):
            with self._lock.reading():
                if self._layout != layout:
                    return False
                vectors = source.rounded(np.arange(start, min(start + _BLOCK, len(source))))
            if store is not source:
                store.add(vectors)
            gpu.add(vectors)
        with self._lock.writing():
            if self._layout != layout or self._store is not source:
                return False
            late = source.rounded(np.arange(len(gpu), len(source)))
            gpu.add(late)
            if store is not source:
                store.add(late)
            self._store, self._ann, self._gpu = store, None, gpu
            self._masks.clear()
        return True

    def drop(self) -> None:
        """Answer exactly from now on, with all vectors in memory and by the CPU."""
        with self._lock.writing():
            self._ann = self._gpu = None
            if self.mapped:
                store = MemoryStore(self.dim, self._scratch)
                for block in self._store.blocks():
                    store.append(block)
                self._store = store
            self._masks.clear()

    def write(self, folder: Path, stem: str, on_copied: Callable[[], None] | None = None) -> dict[str, Path]:
        """Write the view into files of this folder, by part; `on_copied` follows once the view may change.

        Codes are written as they were built: `read` has them learn the rows that came since.

        Raises:
            MovedError: Rows moved meanwhile.
        """
        files = {part: folder / f"{stem}.{part}" for part in ("rows", "keys")}
        with self._lock.reading():
            store, layout, count, ann = self._store, self._layout, len(self._store), self._ann
            keys = self._ids.stored
            codes = None if ann is None else copy_codes(ann, self._built)
        if on_copied is not None:
            on_copied()
        IdMap.write_keys(files["keys"], keys)
        if codes is not None:
            parts, built = write_codes(codes, folder, stem)
            files |= parts
            with self._lock.reading():
                self._built = built if self._ann is ann else self._built
        with files["rows"].open("wb") as file:
            write_header(file, count, store.dim)
            for start in range(0, count, _BLOCK):
                with self._lock.reading():
                    self._refuse_moved(layout)
                    halves = store.halves(np.arange(start, min(start + _BLOCK, count)))
                file.write(halves.data)
        if isinstance(store, MappedStore):
            with self._lock.writing():
                self._refuse_moved(layout)
                store.move_to(files["rows"], count)
        return files

    def read(self, files: Mapping[str, Path]) -> None:
        """Take what `write` put into files in place of what the view holds.

        Raises:
            ValueError: The files do not fit together.
        """
        store = self._store.fresh()
        store.read(files["rows"])
        ids = IdMap.read(files["keys"], len(store))
        ann, built = read_codes(files, store) if "codes" in files else (None, NO_CODES)
        with self._lock.writing():
            self._store, self._ids, self._ann, self._gpu, self._built = store, ids, ann, None, built
            self._layout += 1
            self._masks.clear()

    def _refuse_moved(self, layout: int) -> None:
        if self._layout != layout:
            raise MovedError("vectors were moved meanwhile")

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
        if self._ids.dead > max(_MIN_DEAD, _DEAD_SHARE * len(self._store)):
            alive = self._ids.alive
            self._store.keep(alive)
            self._ids = IdMap(self._ids.keys[alive])
            self._ann = self._gpu = None
            self._layout += 1
