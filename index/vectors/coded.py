"""Codes of what passes a filter, side by side, made in the background once searches took long enough."""

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final

import numpy as np

from index.errors import ViewError
from index.vectors.calibration import FACTORS, NOISE, RECALL, queries_near, recall_of
from index.vectors.flat import TRAINED_ON, FlatCodes
from index.vectors.passing import Filters, Passing, SearchedCopy
from index.vectors.planned import PlannedSearch
from index.vectors.positions import Mask, Positions, Rows
from index.vectors.protocol import After, Keys, Neighbours, Vectors
from index.vectors.ranking import behind, kept, ranked
from index.vectors.stored import Guard, StoredRows

# A page of ten looks for an eleventh hit. What lies deeper than the last is found in other ways.
_DEPTHS: Final = (11, 21, 41, 110, 320)
# How many queries are tried near what passes, and how many farther off from any vector.
_TRIED: Final = 40
_OFF: Final = 1.0
# Of what passes so many are coded between two looks at whether it still passes.
_BLOCK: Final = 16_384
_TIMED: Final = 3
_SEED: Final = 0

_log = logging.getLogger(__name__)


class _ChangedError(Exception):
    """The rows that pass are others by now, or nobody asks for them any more."""


class CodedCopies(SearchedCopy):
    """Codes of some rows (N,), which name candidates for exact ranking.

    Args:
        codes: Of these rows, in their order.
        rows: Which rows; they must stay where they are.
        keys: The keys of all rows.
        stored: The vectors of all rows.
        candidates: How many candidates hold the hits down to a depth, by depth, rising.
    """

    def __init__(
        self, codes: FlatCodes, rows: Rows, keys: Keys, stored: StoredRows, candidates: dict[int, int]
    ) -> None:
        super().__init__(deepest=max(candidates))
        self._codes = codes
        self._rows = rows
        self._keys = keys
        self._stored = stored
        self._candidates = candidates

    @property
    def memory_bytes(self) -> int:
        """Memory that codes and row numbers hold."""
        return self._codes.memory_bytes + self._rows.nbytes

    def search(self, query: Vectors, k: int, after: After | None = None) -> Neighbours | None:
        """Find the `k` nearest vectors to a query (D,) of length one; see `SearchedCopy`."""
        rank = k if after is None else k + after.rank
        if rank > self.deepest:
            return None
        candidates = next(count for depth, count in self._candidates.items() if depth >= rank)
        likely = self._rows[self._codes.search(query[None], candidates)[0]]
        nearest = self._stored.nearest_of(query, kept(rank), likely)
        keys, scores = ranked(query, self._keys, nearest, self._stored.get)
        first = behind(keys, scores, after)
        if first + k > len(keys):
            return None
        return Neighbours(keys[first : first + k], scores[first : first + k], exact=False)


class FilterCoding:
    """Codes what passes the filters of a view, one filter at a time.

    Args:
        filters: What passes.
        guard: Held whenever rows are read, and let go in between.
    """

    def __init__(self, filters: Filters, guard: Guard) -> None:
        self._filters = filters
        self._guard = guard
        self._pool = ThreadPoolExecutor(1, "code-filter")

    def note(self, passing: Passing, spent: int, planned: PlannedSearch, places: Positions) -> None:
        """Take in what a search with a filter took, and begin with codes once they would have cost no more.

        Args:
            passing: What passes it.
            spent: Nanoseconds.
            planned: The view's searches.
            places: Of the rows.
        """
        passing.spent += spent
        if passing.is_worth_coding(planned.rows.dim, planned.planner.row_cost) and passing.begin_coding():
            self._pool.submit(self._code, passing, planned, places.keys, places.alive)

    def _code(self, passing: Passing, planned: PlannedSearch, keys: Keys, alive: Mask) -> None:
        @contextmanager
        def guard() -> Iterator[None]:
            with self._guard():
                if not (self._filters.holds(passing) and threading.main_thread().is_alive()):
                    raise _ChangedError
                yield

        try:
            copies = _coded_copies(passing, planned, keys, np.flatnonzero(alive), guard)
            if copies is not None and (passing.copied is None or copies.cost < passing.copied.cost):
                self._filters.keep_copied(passing, copies, planned.rows.memory_bytes)
        except _ChangedError:
            pass
        except (RuntimeError, MemoryError, ValueError, OSError, ViewError):
            _log.exception("what passes a filter was not coded: it is searched as before")


def _coded_copies(
    passing: Passing, planned: PlannedSearch, keys: Keys, living: Rows, guard: Guard
) -> CodedCopies | None:
    """Code what passes; None where no number of candidates is sure to hold the hits."""
    rows, stored = passing.rows, planned.rows
    random = np.random.default_rng(_SEED)
    with guard():
        sample = stored.rough(np.sort(random.choice(rows, min(len(rows), TRAINED_ON), replace=False)))
    codes = planned.finder.flat(sample)
    if codes is None:
        return None
    for start in range(0, len(rows), _BLOCK):
        with guard():
            vectors = stored.rough(rows[start : start + _BLOCK])
        codes.add(vectors)
    candidates = _candidates(codes, passing, stored, living, guard)
    if not candidates:
        return None
    copies = CodedCopies(codes, rows, keys, stored, candidates)
    with guard():
        copies.measure(stored.get(living[:_TIMED]))
    return copies


def _candidates(
    codes: FlatCodes, passing: Passing, stored: StoredRows, living: Rows, guard: Guard
) -> dict[int, int]:
    """Return how many candidates hold the hits down to each depth, as queries near and far need them."""
    with guard():
        kinds = [
            queries_near(stored, which, min(_TRIED, len(which)), noise)
            for which, noise in ((passing.rows, NOISE), (living, _OFF))
        ]
    deepest = min(_DEPTHS[-1], passing.count - 1)
    queries = np.concatenate([made for made, _ in kinds])
    own = np.concatenate([made_of for _, made_of in kinds])
    nearby = np.arange(len(queries)) < len(kinds[0][0])
    truth = stored.nearest_many(queries, deepest + 1, passing.mask, guard)
    enough: dict[int, int] = {}
    for depth in (depth for depth in _DEPTHS if depth <= deepest):
        found = passing.rows[codes.search(queries, FACTORS[-1] * depth)]
        for candidates in (factor * depth for factor in FACTORS):
            recalls = (
                recall_of(found[kind, :candidates], truth[kind, : depth + 1], own[kind])
                for kind in (nearby, ~nearby)
            )
            if all(recall >= RECALL for recall in recalls):
                enough[depth] = candidates
                break
        else:
            break
    # Of few hits one more or less that is found says little: those farther down tell of these as well.
    return {depth: min(c for deeper, c in enough.items() if deeper >= depth) for depth in enough}
