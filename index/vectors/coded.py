"""Codes of what passes a filter, side by side, made in the background once they would have paid."""

import logging
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, NamedTuple

import numpy as np

from index.vectors.calibration import queries_near
from index.vectors.candidates import SURER, Yardstick, best_of_candidates
from index.vectors.codec import unit
from index.vectors.flat import TRAINED_ON, FlatCodes
from index.vectors.judging import enough_candidates, judge, places_of, with_spare
from index.vectors.passing import Filters, LastingCopy, Passing
from index.vectors.planned import PlannedSearch
from index.vectors.planner import Usual
from index.vectors.positions import Mask, Positions, Rows
from index.vectors.protocol import After, Keys, Neighbours, Vectors
from index.vectors.ranking import behind, ranked, tied
from index.vectors.stored import Guard, StoredRows

# A page of ten looks for an eleventh hit. What lies deeper than the last is found in other ways.
_DEPTHS: Final = (11, 21, 41, 110, 320)
# How many queries are tried near what passes, and how many farther off from any vector.
_FEWEST_TRIED: Final = 40
_MOST_TRIED: Final = 200
# Each is compared with all that passes: about so many of these.
_COMPARED: Final = 4_000_000
_SHALLOW: Final = 41
_OFF: Final = 1.0
_STRANGE: Final = 0.5
# How many candidates are taken for each hit at most, and the share of queries that may seem hard.
_MOST_FOR_A_HIT: Final = 40
_HARD: Final = 0.1
# Of what passes so many are coded between two looks at whether it still passes.
_BLOCK: Final = 16_384
# Of the candidates so many must pass still.
_PASSING_SHARE: Final = 7 / 8
_SEED: Final = 0

_log = logging.getLogger(__name__)


class _ChangedError(Exception):
    """The rows that pass have moved, or nobody asks for them any more."""


class Reach(NamedTuple):
    """How many candidates hold the hits of a query.

    Attributes:
        depth: How many hits.
        candidates: How many of the likeliest hold them with the recall that was measured.
        usual: Where the hits usually lie among these.
    """

    depth: int
    candidates: int
    usual: Usual


class CodedCopies(LastingCopy):
    """Codes of some rows (N,), which name candidates for exact ranking.

    How many candidates hold the hits was measured among these rows. Those that came since may lie otherwise,
    so they are candidates of every query.

    Args:
        codes: Of these rows, in their order.
        rows: Which rows; they must stay where they are.
        keys: The keys of all rows.
        stored: The vectors of all rows.
        reaches: How many candidates hold the hits, by depth, rising; at least one.
        mask: Whether each of all rows passes; None where all of these do.
        came: More rows (M,) that pass, without codes.
    """

    def __init__(
        self,
        codes: FlatCodes,
        rows: Rows,
        keys: Keys,
        stored: StoredRows,
        reaches: Sequence[Reach],
        mask: Mask | None = None,
        came: Rows | None = None,
    ) -> None:
        super().__init__(deepest=reaches[-1].depth)
        self._codes = codes
        self._rows = rows
        self._keys = keys
        self._stored = stored
        self._reaches = reaches
        self._mask = mask
        self._came = came

    @property
    def memory_bytes(self) -> int:
        """Memory that codes and row numbers hold."""
        came = 0 if self._came is None else self._came.nbytes
        return self._codes.memory_bytes + self._rows.nbytes + came

    def search(self, query: Vectors, k: int, after: After | None = None) -> Neighbours | None:
        """Find the `k` nearest vectors to a query (D,) of length one; see `SearchedCopy`."""
        rank = k if after is None else k + after.rank
        if rank > self.deepest:
            return None
        nearest = self._near(query, rank)
        if nearest is None:
            return None
        keys, scores = ranked(query, self._keys, nearest, self._stored.get)
        first = behind(keys, scores, after)
        if first + k > len(keys) or tied(scores, rank):
            return None
        return Neighbours(keys[first : first + k], scores[first : first + k], exact=False)

    def _near(self, query: Vectors, rank: int) -> Rows | None:
        """Return rows that hold the hits down to a rank; None where the codes do not tell."""
        reach = self._reaching(rank)
        for sure in (rank, SURER * rank):
            enough = self._reaching(sure).candidates
            (places,) = self._codes.search(query[None], enough)
            named = self._rows[places[places >= 0]]
            if self._mask is not None:
                passes = self._mask[named]
                if np.count_nonzero(passes) < _PASSING_SHARE * len(named):
                    return None
                named = named[passes]
            yardstick = Yardstick(reach.depth, enough, reach.usual)
            nearest = best_of_candidates(query, rank, self._stored, named, self._came, yardstick)
            if nearest is not None:
                return nearest
        return None

    def _reaching(self, rank: int) -> Reach:
        return next((reach for reach in self._reaches if reach.depth >= rank), self._reaches[-1])

    def followed(self, mask: Mask, keys: Keys) -> "CodedCopies":
        """Take in the rows that pass now as well, and pass over those that do not; see `LastingCopy`."""
        others = mask.copy()
        others[self._rows] = False
        passing = None if mask[self._rows].all() else mask
        came = np.flatnonzero(others) if others.any() else None
        followed = CodedCopies(self._codes, self._rows, keys, self._stored, self._reaches, passing, came)
        followed.cost = self.cost
        return followed


class FilterCoding:
    """Codes what passes the filters of a view, one filter at a time.

    Args:
        filters: What passes.
        guard: Held whenever rows are read, and let go in between.
    """

    def __init__(self, filters: Filters, guard: Guard) -> None:
        self._filters = filters
        self._guard = guard
        self._busy = threading.Lock()
        self._closed = False
        self._pool = ThreadPoolExecutor(1, "code-filter")

    def close(self) -> None:
        """Begin with no more, and give up what has begun."""
        self._closed = True
        self._pool.shutdown(wait=False)

    def note(self, passing: Passing, spent: int, planned: PlannedSearch, places: Positions) -> None:
        """Take in what a search with a filter took, and begin with codes once these would have paid.

        Args:
            passing: What passes it.
            spent: Nanoseconds.
            planned: The view's searches.
            places: Of the rows.
        """
        row_cost = planned.planner.row_cost
        worth = passing.note(spent, planned.rows.dim, row_cost)
        if not worth or not self._busy.acquire(blocking=False):
            return
        passing.coded, passing.changed = True, 0
        try:
            self._pool.submit(self._code, passing, planned, places, np.flatnonzero(places.alive))
        except RuntimeError as error:
            # The process ends, or has no threads left: what was found is no worse for it.
            _log.debug("what passes a filter is not coded: %s", error)
            passing.coded = False
            self._busy.release()

    def _code(self, passing: Passing, planned: PlannedSearch, places: Positions, living: Rows) -> None:
        @contextmanager
        def guard() -> Iterator[None]:
            with self._guard():
                if self._closed or not self._filters.holds(passing):
                    raise _ChangedError
                yield

        try:
            copies = _coded_copies(passing, planned, places.keys, living, guard)
            if copies is not None:
                with guard():
                    self._filters.keep_coded(passing, copies, planned.rows, places.keys)
        except _ChangedError:
            pass
        except Exception:  # noqa: BLE001 - nobody else would see it, and searches do without
            _log.exception("what passes a filter was not coded: it is searched as before")
        finally:
            self._busy.release()


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
    reaches = _reaches(codes, passing, stored, living, guard)
    if not reaches:
        return None
    copies = CodedCopies(codes, rows, keys, stored, reaches)
    with guard():
        asked = list(passing.asked)
        copies.measure(asked)
    # Timed before, perhaps while other work had the caches, it would be no match.
    before = passing.copied
    if before is not None:
        with guard():
            before.measure(asked)
    return copies


def _reaches(
    codes: FlatCodes, passing: Passing, stored: StoredRows, living: Rows, guard: Guard
) -> list[Reach]:
    """Return how many candidates hold the hits down to each depth, as queries near and far need them."""
    tried = min(max(_FEWEST_TRIED, _COMPARED // passing.count), _MOST_TRIED, passing.count)
    queries, own = _queries(passing.rows, stored, living, tried, guard)
    deepest = min(_DEPTHS[-1], passing.count - 1)
    truth = stored.nearest_many(queries, deepest + 1, passing.mask, guard, threads=1)
    truth[truth == own[:, None]] = -1
    enough: list[Reach] = []
    for depth in (depth for depth in _DEPTHS if depth <= deepest):
        # Of many hits, fewer queries tell as much.
        some = slice(None, None, 1 if depth <= _SHALLOW else max(1, tried // _FEWEST_TRIED))
        most = min(_MOST_FOR_A_HIT * depth, passing.count)
        found = passing.rows[codes.search(queries[some], most)]
        places = places_of(truth[some, : depth + 1], found)
        near = np.arange(2 * tried)[some] < tried
        kinds = (places[near], places[~near])
        judged = enough_candidates(kinds, depth, most, _HARD)
        if judged is not None:
            more = with_spare(judged.candidates, most)
            enough.append(Reach(depth, more, judge(kinds, more).usual))
    return enough


def _queries(
    passing: Rows, stored: StoredRows, living: Rows, count: int, guard: Guard
) -> tuple[Vectors, Rows]:
    """Return queries (2 Q, D), half near what passes and half off any vector, and whose they are."""
    with guard():
        near, own = queries_near(stored, passing, count)
        off, own_of_off = queries_near(stored, living, count, _OFF)
    # Other encoders say things that no stored vector says.
    noise = np.random.default_rng(_SEED).standard_normal(off.shape).astype(np.float32)
    off = unit(off + np.float32(_STRANGE) * unit(noise))
    return np.concatenate((near, off)), np.concatenate((own, own_of_off))
