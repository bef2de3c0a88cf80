"""Vectors compared by cosine, float16 as in the catalogue: scanned, or found through codes or a graph."""

import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from index.vectors.coarse import CoarseRows
from index.vectors.coded import FilterCoding
from index.vectors.codes import sample_size
from index.vectors.copied import copies_of
from index.vectors.finders import new_finder
from index.vectors.half import HalfRows
from index.vectors.lock import ReadWriteLock
from index.vectors.many import search_all
from index.vectors.mapped import MappedRows
from index.vectors.one import search_one
from index.vectors.passing import Filters
from index.vectors.planned import MovedError, PlannedSearch
from index.vectors.planner import Planner, ViewName
from index.vectors.positions import Positions
from index.vectors.protocol import After, Keys, Neighbours, Vectors
from index.vectors.ranking import Scores, cosines
from index.vectors.stored import Guard, Halves, StoredRows
from index.vectors.written import write_rows

if TYPE_CHECKING:
    import torch

# Rows that are taken together: from this share that is dead on, the rest moves up.
_DEAD_SHARE: Final = 0.25
_FEWEST_DEAD: Final = 1000
# Codes have 16 values for each pair of numbers.
_FEWEST_LEARNT: Final = 64
# Rows that are learnt at once.
_BLOCK: Final = 16_384
# Numbers of float16 from which on a scan gains more by 8 bits than it takes to rank what that finds.
_WORTH_COARSE: Final = 20_000 * 512
_SEED: Final = 0


class CosineView:
    """All vectors of one generation; searches run beside each other, writes alone.

    It answers exactly until `build` has given it codes or a graph, and then from these as long as they hold
    what they promise: candidates are ranked by their stored vectors, and what cannot be promised is scanned.

    Args:
        dim: Length of a vector.
        spill: Folder on whose disk vectors lie; None for memory.
    """

    def __init__(self, dim: int, spill: Path | None = None) -> None:
        self._rows: HalfRows | MappedRows = HalfRows(dim) if spill is None else MappedRows(dim, spill)
        self._places = Positions()
        self._lock = ReadWriteLock()
        self._planned: PlannedSearch | None = None
        # Changes when rows move: what is being built then fits no longer.
        self._layout = 0
        # Whether a change failed half-way, so that keys and rows may not belong together.
        self._torn = False
        self._filters = Filters()
        self._coding = FilterCoding(self._filters, self._lock.reading)
        # What is being coded would keep all rows of a view that nobody has any more.
        weakref.finalize(self, self._coding.close).atexit = False

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return self._rows.dim

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self._places)

    @property
    def memory_bytes(self) -> int:
        """Memory that vectors, keys, codes or graph and vectors copied for filters hold, but not on a GPU."""
        built = 0 if self._planned is None else self._planned.finder.memory_bytes
        return self._rows.memory_bytes + self._places.memory_bytes + self._filters.memory_bytes + built

    @property
    def name(self) -> ViewName:
        """Which view it is: exact until something is built."""
        if self._planned is not None:
            return self._planned.finder.name
        return "exact" if self._rows.device is None else "gpu"

    @property
    def device_bytes(self) -> int:
        """Memory that vectors hold on a GPU."""
        device = self._rows.device
        return 0 if device is None else device.device_bytes

    @property
    def mapped(self) -> bool:
        """Whether vectors lie in files and not in memory."""
        return isinstance(self._rows, MappedRows)

    @property
    def damaged(self) -> bool:
        """Whether another view must be read in place of this: its files were damaged, or a change failed."""
        return self._torn or self._rows.damaged

    @property
    def outgrown(self) -> bool:
        """Whether so much was added since the build that `keep_up` should be called."""
        return self._planned is not None and (self._planned.finder.outgrown or self._planned.lagging)

    @property
    def planner(self) -> Planner | None:
        """What was measured of codes or graph, if there is one."""
        return None if self._planned is None else self._planned.planner

    def add(self, keys: Keys, vectors: Vectors) -> None:
        """Put in vectors (N, D) under different keys (N,); see `VectorView`.

        They are rounded to float16 and made of length one when they are read, as the catalogue's are:
        `rounded_vectors` come out exactly as `decode_vectors` has them.
        """
        with self._changing():
            if self._planned is None:
                self._rows.add(vectors)
            else:
                self._planned.finder.append(vectors)
            self._places.append(keys)
            self._changed()

    def remove(self, keys: Keys) -> None:
        """Take out the vectors of these keys; see `VectorView`."""
        with self._changing():
            if self._places.drop(keys):
                self._changed()

    def keys(self) -> Keys:
        """Return the keys of all vectors, rising."""
        with self._lock.reading():
            return self._places.rising()

    def vectors(self, keys: Keys) -> Vectors:
        """Return the vectors (N, D) of keys (N,); see `VectorView`."""
        with self._lock.reading():
            rows, known = self._places.find(keys)
            if not known.all():
                raise KeyError(int(keys[~known][0]))
            return self._rows.get(rows)

    def search(
        self, query: Vectors, k: int, *, allowed: Keys | None = None, after: After | None = None
    ) -> Neighbours:
        """Find the `k` nearest vectors to a query (D,) of length one; see `VectorView`.

        What passes `allowed` is remembered as long as the same array is used: it must not be changed.
        """
        with self._lock.reading():
            passing = self._filters.passing(allowed, self._places)
            if allowed is not None:
                passing.asked.append(query)
            if passing.is_worth_copying(self.dim) and passing.begin_copying():
                copied = copies_of(passing, self._places.keys, self._rows)
                if copied is not None:
                    self._filters.keep_copied(passing, copied, self._rows)
            started = time.perf_counter_ns()
            found = search_one(query, k, passing, after, self._places.keys, self._rows, self._planned)
            if allowed is not None and self._planned is not None:
                self._coding.note(passing, time.perf_counter_ns() - started, self._planned, self._places)
            return found

    def scores(self, query: Vectors, keys: Keys) -> tuple[Keys, Scores]:
        """Return those of keys (N,) that are there and what they score; see `VectorView`."""
        with self._lock.reading():
            rows, known = self._places.find(keys)
            return keys[known], cosines(query, self._rows.get(rows[known]))

    def search_many(self, queries: Vectors, k: int) -> list[Neighbours]:
        """Find the `k` nearest vectors to each query (Q, D) of length one; see `VectorView`."""
        if not len(queries):
            return []
        with self._lock.reading():
            passing = self._filters.passing(None, self._places)
            return search_all(queries, k, passing, self._places.keys, self._rows, self._planned)

    def build(self, name: ViewName = "ivf", spill: Path | None = None, asked: Vectors | None = None) -> bool:
        """Give the view codes ("ivf", "mapped") or a graph ("hnsw"), while searches and writes go on.

        A graph has a copy of the vectors until it is built.

        Args:
            name: What to build; vectors move to files for "mapped" and into memory for the others.
            spill: Folder on whose disk files lie.
            asked: Queries (Q, D) like those to come, of length one; recall is measured by these as well.

        Returns:
            False when rows or vectors moved meanwhile, or there are too few to learn from.
        """
        with self._lock.reading():
            rows, layout, alive = self._rows, self._layout, self._places.alive
            known = len(rows) if self._planned is None else len(self._planned.finder)
            living = np.flatnonzero(alive)
            if len(living) < _FEWEST_LEARNT:
                return False
            chosen = np.random.default_rng(_SEED).choice(living, sample_size(len(living)), replace=False)
            sample = rows.get(np.sort(chosen))
        stored = rows
        if self.mapped != (name == "mapped"):
            stored = MappedRows(self.dim, spill) if name == "mapped" else HalfRows(self.dim)
        finder = new_finder(name, stored, sample, len(living))
        for start in range(0, len(alive), _BLOCK):
            with self._lock.reading():
                if self._layout != layout:
                    return False
                vectors = rows.rough(np.arange(start, min(start + _BLOCK, len(alive))))
            finder.learn(vectors)
            if stored is not rows:
                stored.add(vectors)
        stored.use_large_pages()
        # What codes do not promise is scanned seldom, and is to be measured without other copies.
        with self._lock.writing():
            stored.drop_copies()
        planned = PlannedSearch.measured(finder, stored, alive, self._lock.reading, known, asked)
        with self._lock.writing():
            if self._layout != layout or self._rows is not rows:
                return False
            vectors = rows.rough(np.arange(len(finder), len(rows)))
            if stored is not rows:
                stored.add(vectors)
            finder.settle(vectors)
            stored.drop_copies()
            self._rows, self._planned = stored, planned
            self._filters.clear()
        return True

    def keep_up(self) -> bool:
        """Have codes learn the vectors that came since the build, while searches and writes go on.

        Until then, and as long as the codes would not find them as surely as the others, searches compare
        them one by one.

        Returns:
            False when this takes so long, or they are so many, that there should be other codes.
        """
        with self._lock.reading():
            planned, layout = self._planned, self._layout
        if planned is None or planned.finder.outgrown:
            return False
        try:
            return planned.keep_up(lambda: self._places.alive, *self._unmoved(layout, planned))
        except MovedError:
            return True

    def _unmoved(self, layout: int, planned: PlannedSearch | None = None) -> tuple[Guard, Guard]:
        @contextmanager
        def guard(lock: Guard) -> Iterator[None]:
            with lock():
                if self._layout != layout or planned not in (None, self._planned):
                    raise MovedError("vectors were moved meanwhile")
                yield

        return partial(guard, self._lock.reading), partial(guard, self._lock.writing)

    @property
    def slow(self) -> bool:
        """Whether it scans so many vectors in memory that `quicken` would help."""
        rows = self._rows
        scanned = self.name == "exact" and isinstance(rows, HalfRows) and rows.coarse is None
        return scanned and len(rows) * self.dim >= _WORTH_COARSE

    def quicken(self) -> None:
        """Keep vectors in 8 bits as well, for faster scans, while searches and writes go on."""
        with self._lock.reading():
            rows, layout, count = self._rows, self._layout, len(self._rows)
            sample = rows.halves(np.arange(0, count, max(1, count // _BLOCK)))
        coarse = CoarseRows(self.dim, float(np.abs(sample).max(initial=0)))
        if not self._copy(rows, layout, count, coarse.append):
            return
        with self._lock.writing():
            same = self._layout == layout and self._rows is rows and self.name == "exact"
            if same and isinstance(rows, HalfRows):
                coarse.append(rows.halves(np.arange(count, len(rows))))
                rows.coarse = coarse

    def upload(self, device: "torch.device") -> bool:
        """Scan by copies of all vectors on a GPU from now on, made while searches and writes go on.

        Vectors stay in memory, or come there; codes or graph go.

        Args:
            device: The GPU, or any device of torch's.

        Returns:
            False when rows or vectors moved meanwhile.

        Raises:
            RuntimeError: The device does not take them.
        """
        from index.vectors.device import DeviceRows

        with self._lock.reading():
            rows, layout, count = self._rows, self._layout, len(self._rows)
        stored = rows if isinstance(rows, HalfRows) else HalfRows(self.dim)
        copies = DeviceRows(self.dim, device)

        def copy(halves: Halves) -> None:
            copies.append(halves)
            if stored is not rows:
                stored.append(halves)

        if not self._copy(rows, layout, count, copy):
            return False
        with self._lock.writing():
            if self._layout != layout or self._rows is not rows:
                return False
            copy(rows.halves(np.arange(count, len(rows))))
            stored.scan_on(copies)
            self._rows, self._planned = stored, None
            self._filters.clear()
        return True

    def _copy(self, rows: StoredRows, layout: int, count: int, copy: Callable[[Halves], None]) -> bool:
        """Have the first rows copied, some at a time; False when they moved meanwhile."""
        for start in range(0, count, _BLOCK):
            with self._lock.reading():
                if self._layout != layout:
                    return False
                halves = rows.halves(np.arange(start, min(start + _BLOCK, count)))
            copy(halves)
        return True

    def drop(self) -> None:
        """Answer exactly from now on, with all vectors in memory and by the CPU."""
        with self._lock.writing():
            self._planned = None
            self._rows.drop_copies()
            if self.mapped:
                rows = HalfRows(self.dim)
                for block in self._rows.blocks():
                    rows.append(block)
                self._rows = rows
            self._filters.clear()

    def write(self, folder: Path, stem: str, settled: Callable[[], None] | None = None) -> dict[str, Path]:
        """Write what is here now into files of this folder, by part; `settled` is called once it may change.

        Raises:
            MovedError: Rows moved meanwhile.
        """
        files = {part: folder / f"{stem}.{part}" for part in ("rows", "keys")}
        with self._lock.reading():
            rows, layout, count = self._rows, self._layout, len(self._rows)
            self._places.write(files["keys"])
            if self._planned is not None:
                files |= self._planned.write(folder, stem)
        if settled is not None:
            settled()
        write_rows(files["rows"], rows, count, *self._unmoved(layout))
        return files

    def read(self, files: Mapping[str, Path]) -> None:
        """Take what `write` put into files in place of what the view holds.

        Raises:
            ValueError: They do not fit together.
        """
        rows = self._rows.fresh()
        rows.read(files["rows"])
        places = Positions.read(files["keys"], len(rows))
        planned = PlannedSearch.read(files, rows)
        with self._lock.writing():
            self._rows, self._places, self._planned = rows, places, planned
            self._layout += 1
            self._filters.clear()

    def close(self) -> None:
        """Give up what is being coded in the background."""
        self._coding.close()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._lock.writing():
            try:
                yield
            except BaseException:
                self._torn = True
                self._layout += 1
                raise

    def _changed(self) -> None:
        self._filters.set_aside()
        if self._places.dead > max(_FEWEST_DEAD, _DEAD_SHARE * len(self._rows)):
            alive = self._places.alive
            self._rows.keep(alive)
            self._places = Positions.of(self._places.keys[alive])
            self._planned = None
            self._layout += 1
            self._filters.clear()
