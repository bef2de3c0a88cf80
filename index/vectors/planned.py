"""Searches that are planned: which rows may hold the hits of a query, by codes or a graph."""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final

import numpy as np

from index.vectors.calibration import calibrate, holds
from index.vectors.candidates import SURER, Yardstick, best_of_candidates, best_of_each, widened_to
from index.vectors.finder import Finder
from index.vectors.finders import read_finder
from index.vectors.half import HalfRows
from index.vectors.mapped import MappedRows
from index.vectors.passing import Passing
from index.vectors.planner import Planner, Probe, Usual
from index.vectors.positions import Mask, Rows
from index.vectors.protocol import Vectors
from index.vectors.stored import Guard, StoredRows

# Searches of the codes for one query, before what passes is scanned.
_TRIED: Final = 4
# To compare what came since the build may take this share of the quickest search of the codes, until they
# should learn it; and this, until there should be others if these cannot.
_WORTH_LEARNING: Final = 1 / 4
_WORTH_ANOTHER: Final = 2.0
_FEWEST_LAGGING: Final = 64
# Of what came, so many are tried together, and so many learnt while searches wait.
_TRIED_AT_ONCE: Final = 16_384
_LEARNT_AT_ONCE: Final = 256


class MovedError(Exception):
    """Rows have moved, or there is another finder, while something was learnt."""


class PlannedSearch:
    """Names the rows that may be hits where that costs less than a scan and the finder can promise them.

    Rows that the finder has not learnt are compared one by one, until it is known to find them as well.
    """

    def __init__(self, finder: Finder, planner: Planner, rows: StoredRows) -> None:
        self.finder = finder
        self.planner = planner
        self.rows = rows
        # What comes next must not change while it is tried.
        self._learning = threading.Lock()
        # How many rows it once could not learn.
        self._refused = 0

    @classmethod
    def measured(
        cls,
        finder: Finder,
        rows: StoredRows,
        alive: Mask,
        guard: Guard,
        newest: int,
        asked: Vectors | None = None,
    ) -> "PlannedSearch":
        """Plan the searches by what they cost; see `calibrate`."""
        return cls(finder, calibrate(finder, rows, alive, guard, newest, asked), rows)

    @property
    def lagging(self) -> bool:
        """Whether it takes long enough to compare what came since that the finder should learn it.

        One that finds nothing surely compares everything anyway: among twice as many rows another may.
        """
        if not self.planner.probes:
            return self._since >= len(self.finder)
        return self._since >= max(_FEWEST_LAGGING, 2 * self._refused) and self._slowed >= _WORTH_LEARNING

    def keep_up(self, alive: Callable[[], Mask], reading: Guard, writing: Guard) -> bool:
        """Have the finder learn the rows that came since, if it would find them as surely as the others.

        Args:
            alive: Gives which rows may be found.
            reading: Held whenever rows are read, and let go in between.
            writing: Held whenever the finder learns, and let go in between.

        Returns:
            False when there should be another finder, as it takes too long to compare what this cannot learn,
            or as it finds nothing surely.

        Raises:
            MovedError: By the guards; what was learnt until then stays.
        """
        if not self.planner.probes:
            return False
        with self._learning:
            count = len(self.rows)
            for start in range(len(self.finder), count, _TRIED_AT_ONCE):
                rows = np.arange(start, min(start + _TRIED_AT_ONCE, count))
                with reading():
                    vectors, passing = self.rows.rough(rows), alive()[: start + len(rows)]
                if not self._would_hold(vectors, passing, reading):
                    self._refused = self._since
                    return self._slowed < _WORTH_ANOTHER
                for at in range(0, len(vectors), _LEARNT_AT_ONCE):
                    with writing():
                        self.finder.learn(vectors[at : at + _LEARNT_AT_ONCE])
        return True

    def _would_hold(self, vectors: Vectors, alive: Mask, guard: Guard) -> bool:
        living = Passing(None, alive, int(np.count_nonzero(alive)))
        search = self.finder.with_learnt(vectors, living.selector)
        return search is None or holds(search, self.planner, self.rows, alive, len(self.finder), guard)

    @property
    def _since(self) -> int:
        return len(self.rows) - len(self.finder)

    @property
    def _slowed(self) -> float:
        """What it takes to compare what came since, in searches of the codes."""
        return self._since * self.planner.candidate_cost / self.planner.least

    def near(self, query: Vectors, rank: int, passing: Passing) -> Rows | None:
        """Return rows that hold the hits of a query (D,) down to a rank, or None to scan for them."""
        total, met = len(passing.mask), passing.near
        copies = passing.copied
        copied = copies.cost if copies is not None and rank <= copies.deepest else None
        if copied is not None and copied < self.planner.least:
            return None
        probe = self.planner.first(rank, passing.count, total, met.share, found=met.found, copied=copied)
        if probe is None:
            met.forget(passing.count / total)
            return None
        newest = self._newest(passing)
        # The hits of a query that is hard for the codes are looked for as if more were needed.
        sure, measured = rank, self.planner.reaching(rank)
        for _ in range(_TRIED):
            (rows,) = self.finder.search(query[None], probe)
            passes = passing.mask[rows]
            if rows[-1] < 0:
                passes &= rows >= 0
            share = int(np.count_nonzero(passes)) / len(passes)
            met.note(share)
            reached = int(np.count_nonzero(passes[: probe.depth]))
            while reached >= sure:
                enough = self.planner.candidates(sure)
                yardstick = Yardstick(measured.depth, enough, measured.usual)
                hits = best_of_candidates(query, rank, self.rows, rows[passes][:enough], newest, yardstick)
                if hits is not None:
                    met.note_found(True)
                    return hits
                sure *= SURER
            probe = self.planner.deeper(probe, share, sure, passing.count, total, copied=copied)
            if probe is None:
                break
        met.note_found(False)
        return None

    def _newest(self, passing: Passing) -> Rows | None:
        """Return the rows that pass and came since, if any came."""
        known = len(self.finder)
        return None if known == len(passing.mask) else known + np.flatnonzero(passing.mask[known:])

    def first(self, rank: int, passing: Passing) -> Probe | None:
        """Return how the finder is searched for many queries without a filter, or None to scan."""
        met = passing.near
        return self.planner.first(rank, passing.count, len(passing.mask), met.share, found=met.found)

    def near_each(self, queries: Vectors, rank: int, passing: Passing, probe: Probe, named: Rows) -> Rows:
        """Return rows (Q, R) that hold the hits of queries (Q, D) down to a rank, without a filter.

        Args:
            queries: What to search for.
            rank: How many hits are needed.
            passing: Which rows may be found.
            probe: How the finder was searched already.
            named: What it found (Q, C).

        Returns:
            -1 stands for no row; where there is none, hits must be scanned for.
        """
        met, total = passing.near, len(passing.mask)
        near = np.full((len(queries), 1), -1, dtype=np.int64)
        newest, measured = self._newest(passing), self.planner.reaching(rank)
        left, sure = np.arange(len(queries)), rank
        for _ in range(_TRIED):
            passes = passing.mask[named] & (named >= 0)
            share = float(passes.mean())
            met.note(share)
            reached = np.count_nonzero(passes[:, : probe.depth], axis=1) >= sure
            enough = self.planner.candidates(sure)
            those = left[reached]
            likely = [rows[its][:enough] for rows, its in zip(named[reached], passes[reached], strict=True)]
            yardstick = Yardstick(measured.depth, enough, measured.usual)
            found = best_of_each(queries[those], rank, self.rows, likely, newest, yardstick)
            near = widened_to(near, found.shape[1])
            near[those, : found.shape[1]] = found
            left, sure = left[near[left, 0] < 0], SURER * sure
            deeper = self.planner.deeper(probe, share, sure, passing.count, total)
            if deeper is None or not len(left):
                break
            probe, named = deeper, self.finder.search(queries[left], deeper)
        met.note_found(1 - len(left) / len(queries))
        return near

    def write(self, folder: Path, stem: str) -> dict[str, Path]:
        """Write finder and plan into files of this folder, by part."""
        plan = folder / f"{stem}.plan"
        plan.write_text(json.dumps(asdict(self.planner)))
        return {**self.finder.write(folder, stem), "plan": plan}

    @classmethod
    def read(cls, files: Mapping[str, Path], rows: HalfRows | MappedRows) -> "PlannedSearch | None":
        """Return what `write` put into files, or None when there was nothing.

        Raises:
            ValueError: They are not of these rows.
        """
        finder = read_finder(files, rows)
        return None if finder is None else cls(finder, _read_planner(files["plan"]), rows)


def _read_planner(path: Path) -> Planner:
    try:
        held = json.loads(path.read_bytes())
        probes = tuple(Probe(**{**probe, "usual": Usual(**probe["usual"])}) for probe in held["probes"])
        costs = (float(held[name]) for name in ("row_cost", "pass_cost", "candidate_cost"))
        return Planner(probes, *costs)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("the file holds no plan of searches") from error
