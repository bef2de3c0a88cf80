"""Approximate search: candidates by PQ codes, ranked by their stored vectors; more of them for hard queries.

A query is hard if hits lie behind the first quarter of the probed lists or the first half of the candidates:
further hits may then lie in other lists, or behind the last candidate. A hard query is searched again with
four times as many lists, or candidates.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from index.vectors.ann.ivf_pq import IvfPq
from index.vectors.filter_mask import FilterMask
from index.vectors.id_map import Mask, Rows
from index.vectors.protocol import Vectors
from index.vectors.ranking import rerank_depth
from index.vectors.storage.memory import MemoryStore
from index.vectors.storage.vector_store import VectorStore

# Passing rows up to which a filtered search is a scan: about as fast, and exact.
_SCANNED_ROWS: Final = 3_000
# Factor of lists and candidates from one search to the next.
_MORE: Final = 4
# A tail hit lies behind these shares of the lists or of the candidates, and makes the search too shallow, ...
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
# Passing rows lie farther away than hits of all rows, where codes tell them apart less well.
_FILTERED_CANDIDATES: Final = 4
# A filter disagrees with a query if the density of passing rows near the query is below this share of its
# selectivity. Hits then lie in scattered lists, and the tail hits of few lists do not show it.
_DISAGREEING: Final = 0.9
_DISAGREEING_DEPTH_FACTOR: Final = 8
# Factor of candidates for each query of a batch.
_CANDIDATES_OF_EACH: Final = 2
# Candidates in order that each hit is compared with: rounding may hide a hit behind others.
_COMPARED_A_HIT: Final = 2
# A search for a larger share of all rows is a scan.
_MAX_CANDIDATE_SHARE: Final = 1 / 4
# Rows that a reader of codes adds to them at once.
_ADDED_AT_ONCE: Final = 16_384


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
    """Return the operating point that a snapshot's file holds.

    Raises:
        ValueError: The file holds no operating point.
    """
    try:
        return OperatingPoint(**json.loads(path.read_bytes()))
    except TypeError as error:
        raise ValueError("the file holds no operating point") from error


class AnnSearch:
    """Finds the rows that hold the hits of a query, or tells that a scan must.

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
        newest = self._newest(passing)
        checked = max(rank, _MIN_CHECKED)
        while candidates <= _MAX_CANDIDATE_SHARE * len(self.store):
            lists = self.codes.nearest_lists(products, list_count, passing)
            found = self.codes.search(rotated, products, lists, candidates, passing.bits)
            rows = np.concatenate((found, newest))
            more_lists = more_candidates = len(rows) < min(rerank_depth(rank), passing.count)
            if not more_lists:
                near, places = self.store.best_of(query, _COMPARED_A_HIT * rerank_depth(checked), rows)
                hits = places[:checked]
                hits = hits[hits < len(found)]
                more_candidates = _is_hard(hits >= _TAIL_CANDIDATES * candidates, rank)
                # After a probe of all lists no hit lies in another.
                if len(lists) == list_count:
                    edge = products[lists[math.ceil(_TAIL_LISTS * list_count)]]
                    more_lists = _is_hard(products[self.codes.list_of_row[found[hits]]] <= edge, rank)
                if not more_lists and not more_candidates:
                    return self._likely(query, rank, rows, near, places)
            list_count *= _MORE if more_lists else 1
            candidates *= _MORE if more_candidates else 1
        return None

    def shortlists(self, queries: Vectors, rank: int, passing: FilterMask) -> list[Rows | None]:
        """Return the shortlist of each query (Q, D) of a batch; without a filter all cores search at once."""
        is_scanned = not self.point.lists or passing.count <= self.scanned_rows
        if is_scanned or passing.filtered or not isinstance(self.store, MemoryStore):
            return [self.shortlist(query, rank, passing) for query in queries]
        each = zip(queries, *self._search_each(queries, rank, passing, self.store.index), strict=True)
        return [self.shortlist(query, rank, passing) if is_hard else rows for query, rows, is_hard in each]

    def _search_each(
        self, queries: Vectors, rank: int, passing: FilterMask, index: Any
    ) -> tuple[list[Rows], Mask]:
        """Return the rows that may be hits of each query (Q, D), and which queries are hard (Q,)."""
        checked = max(rank, _MIN_CHECKED)
        width = _COMPARED_A_HIT * rerank_depth(checked)
        lists, candidates = self._unfiltered_effort(rank)
        # The place of a hit among the candidates is not known, so more of them are ranked.
        candidates *= _CANDIDATES_OF_EACH
        near, rows = self.codes.search_each(queries, index, lists, candidates, width, passing.bits)
        hard = rows[:, min(rerank_depth(rank), width) - 1] < 0
        each, newest = np.arange(len(queries))[:, None], self._newest(passing)
        if len(newest):
            near = np.concatenate((near, queries @ self.store.rounded(newest).T), axis=1)
            rows = np.concatenate((rows, np.tile(newest, (len(queries), 1))), axis=1)
            best = np.argsort(-near, axis=1)[:, :width]
            near, rows = near[each, best], rows[each, best]
        if lists < self.codes.lists:
            products, hits = self.codes.rotated(queries)[1], rows[:, :checked]
            edge = self.codes.lists - 1 - math.ceil(_TAIL_LISTS * lists)
            edges = np.partition(products, edge, axis=1)[:, edge, None]
            coded = hits < len(self.codes)
            tail = products[each, self.codes.list_of_row[np.where(coded, hits, 0)]] <= edges
            hard |= _is_hard(tail & coded, rank)
        likely = near >= near[:, rank - 1, None] - 2 * self.store.error
        # Further rows may be as near as these.
        hard |= likely[:, -1]
        return [row[its] for row, its in zip(rows, likely, strict=True)], hard

    def _newest(self, passing: FilterMask) -> Rows:
        """Return the rows that pass and came after the codes."""
        newest: Rows = len(self.codes) + np.flatnonzero(passing.mask[len(self.codes) :])
        return newest

    def _unfiltered_effort(self, rank: int) -> tuple[int, int]:
        """Return how many lists to probe and candidates to take first where all rows pass."""
        deeper = max(1.0, rank / MEASURED_RANK) ** _DEPTH_POWER
        candidates = max(self.point.candidates, _CANDIDATES_A_HIT * rerank_depth(rank))
        return round(deeper * self.point.lists), candidates

    def _effort(self, rank: int, products: Vectors, passing: FilterMask) -> tuple[int, int]:
        """Return how many lists to probe and candidates to take first, by products with all centroids."""
        lists, candidates = self._unfiltered_effort(rank)
        if not passing.filtered:
            return lists, candidates
        density = self.codes.density(products, self.point.lists, passing)
        deeper = min(_MAX_DEPTH_FACTOR, 1 / max(density, 1 / _MAX_DEPTH_FACTOR)) ** _DEPTH_POWER
        if density < _DISAGREEING * passing.count / len(passing.mask):
            deeper *= _DISAGREEING_DEPTH_FACTOR
        return round(deeper * lists), _FILTERED_CANDIDATES * candidates

    def _likely(self, query: Vectors, rank: int, rows: Rows, products: Vectors, places: Rows) -> Rows:
        """Return the rows that may be hits: those not clearly below the last one."""
        least = products[min(rank, len(products)) - 1] - 2 * self.store.error
        while products[-1] >= least and len(products) < len(rows):
            products, places = self.store.best_of(query, 2 * len(products), rows)
        likely: Rows = rows[places[products >= least]]
        return likely


def _is_hard(tail: Mask, rank: int) -> Any:
    """Tell of which queries too many hits (..., H) down to a rank are tail hits."""
    return np.count_nonzero(tail, axis=-1) > max(0, rank - MEASURED_RANK) // _HITS_PER_TAIL_HIT
