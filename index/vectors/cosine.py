"""Vectors compared by cosine, float16 as in the catalogue: scanned exactly, or found through codes."""

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np

from index.planner import Planner, Probe
from index.vectors.calibration import calibrate
from index.vectors.codes import Codes, list_count, sample_size
from index.vectors.half import HalfRows
from index.vectors.lock import ReadWriteLock
from index.vectors.positions import Mask, Positions, Rows
from index.vectors.protocol import After, Keys, Neighbours, Vectors
from index.vectors.ranking import behind, best_first, cosines
from index.vectors.threads import cores

# Candidates beyond those asked for that are ranked exactly: rounding may have put them in another order.
_SPARE: Final = 8
# Up to this share of all rows, those that pass are gathered instead of picked during a scan (measured).
_GATHERED: Final = 0.005
# Rows that are taken together: from this share that is dead on, the rest moves up.
_DEAD_SHARE: Final = 0.25
_FEWEST_DEAD: Final = 1000
_REMEMBERED_FILTERS: Final = 8
_BLOCK: Final = 16_384
_QUERIES_AT_ONCE: Final = 32
_SEED: Final = 0


@dataclass(frozen=True, slots=True)
class _Passing:
    """The rows that may be found; `keys` is what they were found from, and keeps its identity alive."""

    keys: Keys | None
    mask: Mask
    count: int


class CosineView:
    """All vectors of one generation; searches run beside each other, writes alone.

    It answers exactly until `build` has given it codes, and then from these as long as they hold what they
    promise: candidates are ranked by their stored vectors, and what the codes cannot answer is scanned.
    """

    def __init__(self, dim: int) -> None:
        self._rows = HalfRows(dim)
        self._places = Positions()
        self._lock = ReadWriteLock()
        self._codes: Codes | None = None
        self._planner: Planner | None = None
        # Changes when rows move: codes that are being built then fit no longer.
        self._layout = 0
        self._memory_lock = threading.Lock()
        self._filters: OrderedDict[int, _Passing] = OrderedDict()

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return self._rows.dim

    def __len__(self) -> int:
        """Return the number of vectors."""
        return len(self._places)

    @property
    def memory_bytes(self) -> int:
        """Memory that vectors, keys and codes hold."""
        codes = 0 if self._codes is None else self._codes.memory_bytes
        return self._rows.memory_bytes + self._places.memory_bytes + codes

    @property
    def has_codes(self) -> bool:
        """Whether searches go through codes."""
        return self._codes is not None

    @property
    def outgrown(self) -> bool:
        """Whether so much was added since the codes were learnt that they should be learnt again."""
        return self._codes is not None and list_count(len(self)) > 2 * self._codes.lists

    @property
    def planner(self) -> Planner | None:
        """What was measured of the codes, if there are any."""
        return self._planner

    def add(self, keys: Keys, vectors: Vectors) -> None:
        """Put in vectors (N, D) under different keys (N,); see `VectorView`.

        They are rounded to float16 and made of length one when they are read, as the catalogue's are:
        `rounded_vectors` come out exactly as `decode_vectors` has them.
        """
        with self._lock.writing():
            self._places.append(keys)
            self._rows.add(vectors)
            if self._codes is not None:
                self._codes.add(vectors)
            self._changed()

    def remove(self, keys: Keys) -> None:
        """Take out the vectors of these keys; see `VectorView`."""
        with self._lock.writing():
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
            passing = self._passing(allowed)
            rank = k if after is None else k + after.rank
            probe = self._probe(rank, passing)
            if probe is not None:
                found = self._through_codes(query, k, rank, probe, passing, after)
                if found is not None:
                    return found
            return self._scan(query, k, rank, passing, after)

    def search_many(self, queries: Vectors, k: int) -> list[Neighbours]:
        """Find the `k` nearest vectors to each query (Q, D) of length one; see `VectorView`."""
        if not len(queries):
            return []
        with self._lock.reading():
            passing = self._passing(None)
            probe = self._probe(k, passing)
            if probe is None or self._codes is None:
                near = self._rows.nearest_many(queries, min(k + _SPARE, passing.count), passing.mask)
            else:
                near = self._codes.search(queries, probe.lists, probe.candidates)
            starts = range(0, len(queries), _QUERIES_AT_ONCE)
            parts = [slice(start, start + _QUERIES_AT_ONCE) for start in starts]
            with ThreadPoolExecutor(cores()) as pool:
                ranked = pool.map(lambda part: self._rank_many(queries[part], near[part], k, passing), parts)
                found = [hits for hits_of in ranked for hits in hits_of]
            for place, hits in enumerate(found):
                enough = len(hits.keys) >= min(k, passing.count)
                if enough and (probe is not None or self._settled(hits, k, passing)):
                    found[place] = Neighbours(hits.keys[:k], hits.scores[:k], probe is None)
                else:
                    found[place] = self._scan(queries[place], k, k, passing, None)
            return found

    def build(self) -> bool:
        """Give the view codes, while searches and writes go on; False when rows moved meanwhile."""
        with self._lock.reading():
            layout, alive = self._layout, self._places.alive
            living = np.flatnonzero(alive)
            if not len(living):
                return False
            chosen = np.random.default_rng(_SEED).choice(living, sample_size(len(living)), replace=False)
            sample = self._rows.get(np.sort(chosen))
        codes = Codes.train(sample, len(living))
        for start in range(0, len(alive), _BLOCK):
            with self._lock.reading():
                if self._layout != layout:
                    return False
                vectors = self._rows.get(np.arange(start, min(start + _BLOCK, len(alive))))
            codes.add(vectors)
        planner = calibrate(codes, self._rows, alive, self._lock.reading)
        with self._lock.writing():
            if self._layout != layout:
                return False
            codes.add(self._rows.get(np.arange(len(codes), len(self._rows))))
            self._codes, self._planner = codes, planner
        return True

    def drop_codes(self) -> None:
        """Answer exactly from now on."""
        with self._lock.writing():
            self._codes = self._planner = None

    def write(self, folder: Path, stem: str) -> dict[str, Path]:
        """Write the view into files of this folder, by part; writers wait meanwhile."""
        files = {part: folder / f"{stem}.{part}" for part in ("rows", "keys")}
        with self._lock.reading():
            self._rows.write(files["rows"])
            with files["keys"].open("wb") as file:
                np.save(file, np.where(self._places.alive, self._places.keys, -1))
            if self._codes is not None and self._planner is not None:
                files |= {part: folder / f"{stem}.{part}" for part in ("codes", "plan")}
                self._codes.write(files["codes"])
                files["plan"].write_text(json.dumps(asdict(self._planner)))
        return files

    def read(self, files: Mapping[str, Path]) -> None:
        """Take what `write` put into files in place of what the view holds.

        Raises:
            ValueError: They do not fit together.
        """
        rows, codes, planner = HalfRows(self.dim), None, None
        rows.read(files["rows"])
        with files["keys"].open("rb") as file:
            keys = np.load(file, allow_pickle=False)
        if keys.dtype != np.int64 or keys.shape != (len(rows),):
            raise ValueError("the files do not hold one key for each vector")
        if "codes" in files:
            codes, planner = Codes.read(files["codes"]), _read_planner(files["plan"])
            if (codes.dim, len(codes)) != (self.dim, len(rows)):
                raise ValueError("the files do not hold one code for each vector")
        with self._lock.writing():
            self._rows, self._places = rows, Positions.of(keys)
            self._codes, self._planner = codes, planner
            self._layout += 1
            self._filters.clear()

    def _changed(self) -> None:
        self._filters.clear()
        if self._places.dead > max(_FEWEST_DEAD, _DEAD_SHARE * len(self._rows)):
            alive = self._places.alive
            self._rows.keep(alive)
            self._places = Positions.of(self._places.keys[alive])
            self._codes = self._planner = None
            self._layout += 1

    def _passing(self, allowed: Keys | None) -> _Passing:
        if allowed is None:
            return _Passing(None, self._places.alive, len(self))
        with self._memory_lock:
            known = self._filters.get(id(allowed))
            if known is not None:
                self._filters.move_to_end(id(allowed))
                return known
        rows, there = self._places.find(allowed)
        mask = np.zeros(len(self._rows), dtype=bool)
        mask[rows[there]] = True
        passing = _Passing(allowed, mask, int(np.count_nonzero(there)))
        with self._memory_lock:
            self._filters[id(allowed)] = passing
            if len(self._filters) > _REMEMBERED_FILTERS:
                self._filters.popitem(last=False)
        return passing

    def _probe(self, rank: int, passing: _Passing) -> Probe | None:
        return None if self._planner is None else self._planner.choose(rank, passing.count, len(self))

    def _through_codes(
        self, query: Vectors, k: int, rank: int, probe: Probe, passing: _Passing, after: After | None
    ) -> Neighbours | None:
        """Return the hits, or None when the candidates are too few to promise them."""
        if self._codes is None:
            return None
        rows = self._codes.search(query[None], probe.lists, probe.candidates)[0]
        rows = rows[rows >= 0]
        passes = passing.mask[rows]
        if np.count_nonzero(passes[: probe.depth]) < rank:
            return None
        rows = rows[passes]
        kept = rank + _SPARE + rank // 8
        if len(rows) > 2 * kept:
            rough = self._rows.rough(rows) @ query
            rows = rows[np.argpartition(-rough, kept)[:kept]]
        keys, scores = self._ranked(query, rows)
        first = behind(keys, scores, after)
        if first + k > len(keys):
            return None
        return Neighbours(keys[first : first + k], scores[first : first + k], exact=False)

    def _scan(self, query: Vectors, k: int, rank: int, passing: _Passing, after: After | None) -> Neighbours:
        wanted = rank + _SPARE
        while True:
            rows = self._nearest(query, min(wanted, passing.count), passing)
            keys, scores = self._ranked(query, rows)
            first = behind(keys, scores, after)
            hits = Neighbours(keys[: first + k], scores[: first + k], exact=True)
            everything = Neighbours(keys, scores, exact=True)
            if self._settled(everything, first + k, passing):
                return Neighbours(hits.keys[first:], hits.scores[first:], exact=True)
            wanted *= 2

    def _settled(self, found: Neighbours, last: int, passing: _Passing) -> bool:
        """Say whether nothing that was not found can rank before the `last` of what was."""
        if len(found.keys) >= passing.count:
            return True
        # What was left out scored no better by FAISS than the worst that came in.
        margin = np.float32(2 * self._rows.error)
        return last < len(found.keys) and bool(found.scores[last - 1] > found.scores[-1] + margin)

    def _nearest(self, query: Vectors, count: int, passing: _Passing) -> Rows:
        if count == 0:
            return np.empty(0, dtype=np.int64)
        total = len(self._rows)
        if count == passing.count:
            return np.flatnonzero(passing.mask)
        if passing.count <= _GATHERED * total:
            rows = np.flatnonzero(passing.mask)
            rough = np.concatenate(
                [self._rows.rough(rows[at : at + _BLOCK]) @ query for at in range(0, len(rows), _BLOCK)]
            )
            return rows[np.argpartition(-rough, count - 1)[:count]]
        return self._rows.nearest(query, count, None if passing.count == total else passing.mask)

    def _ranked(self, query: Vectors, rows: Rows) -> tuple[Keys, Vectors]:
        """Return keys and scores of rows, best first; a page far behind takes only some vectors at once."""
        scores = np.empty(len(rows), dtype=np.float32)
        for at in range(0, len(rows), _BLOCK):
            part = slice(at, at + _BLOCK)
            scores[part] = cosines(query, self._rows.get(rows[part]))
        return best_first(self._places.keys[rows], scores)

    def _rank_many(self, queries: Vectors, near: Rows, k: int, passing: _Passing) -> list[Neighbours]:
        """Rank the candidates (Q, C) of each query; a few more than `k` come back."""
        found = []
        for query, candidates in zip(queries, near, strict=True):
            rows = candidates[candidates >= 0]
            rows = rows[passing.mask[rows]]
            if len(rows) > 2 * (k + _SPARE):
                rough = self._rows.rough(rows) @ query
                rows = rows[np.argpartition(-rough, k + _SPARE)[: k + _SPARE]]
            found.append(Neighbours(*self._ranked(query, rows), exact=False))
        return found


def _read_planner(path: Path) -> Planner:
    try:
        held = json.loads(path.read_bytes())
        probes = tuple(Probe(**probe) for probe in held["probes"])
        return Planner(probes, float(held["row_cost"]), float(held["pass_cost"]))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("the file holds no plan of searches") from error
