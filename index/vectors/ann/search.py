"""Approximate search: candidates by PQ codes, ranked by their stored vectors; more of them for hard queries.

A query is hard if a hit lies in one of the last lists that were probed, or among the last candidates: further
hits then lie behind. It is searched again with four times as many of both.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from index.vectors.ann.ivf_pq import IvfPq
from index.vectors.filter_mask import FilterMask
from index.vectors.id_map import Rows
from index.vectors.protocol import Vectors
from index.vectors.ranking import kept
from index.vectors.storage.vector_store import VectorStore
from index.vectors.threads import scanners

# Up to so many rows that pass a filter are compared one by one: that takes about as long, and misses nothing.
_SCANNED_ROWS: Final = 3_000
# How many lists and candidates each further search has for one before.
_MORE: Final = 4
# No hit may lie behind these shares of the lists and of the candidates, ...
_LATE_LIST: Final = 1 / 8
_LATE_CANDIDATE: Final = 1 / 4
# ... but for one in so many hits of a deep search.
_HITS_A_LATE: Final = 50
# Candidates for each hit at least.
_CANDIDATES_A_HIT: Final = 4
# The hits that an operating point is measured with, and the power by which deeper ones lie in more lists.
MEASURED_RANK: Final = 10
_DEPTH_POWER: Final = 0.5
# Queries whose candidates are named together, while those of the queries before are ranked.
_AT_ONCE: Final = 32
# For each hit so many candidates are compared in order: rounding may hide a hit behind others.
_COMPARED_A_HIT: Final = 2
# A search for a larger share of all rows is a scan.
_MOST_CANDIDATES: Final = 1 / 4


@dataclass(frozen=True, slots=True)
class OperatingPoint:
    """How much is searched at first, and how well that was measured to find the ten nearest.

    Attributes:
        lists: Lists to probe; 0 if no number of them finds enough, so that everything is scanned.
        candidates: Candidates to rank exactly.
        recall: Mean recall@10 of calibration queries.
        lowest: The lowest recall@10 of one of them.
        queries: How many there were.
    """

    lists: int
    candidates: int
    recall: float
    lowest: float
    queries: int


def read_point(path: Path) -> OperatingPoint:
    """Return the operating point that a snapshot's file holds.

    Raises:
        ValueError: It holds none.
    """
    try:
        return OperatingPoint(**json.loads(path.read_bytes()))
    except TypeError as error:
        raise ValueError("the file holds no operating point") from error


class _Named(NamedTuple):
    """Candidates of one query, likeliest first, and the lists that were probed for them."""

    rows: Rows
    lists: Rows


class AnnSearch:
    """Finds the rows that hold the hits of a query, or tells that a scan must.

    Rows that came after the codes were built are compared one by one.

    Attributes:
        scanned_rows: If no more rows pass a filter, they are scanned.
    """

    scanned_rows = _SCANNED_ROWS

    def __init__(self, codes: IvfPq, point: OperatingPoint, store: VectorStore) -> None:
        self.codes = codes
        self.point = point
        self.store = store

    def near(self, query: Vectors, rank: int, passing: FilterMask) -> Rows | None:
        """Return rows that hold the hits of a query (D,) down to a rank; None if everything must be scanned.

        Args:
            query: Of length one.
            rank: How many hits are needed.
            passing: Which rows may be found.
        """
        if not self.point.lists or passing.count <= max(self.scanned_rows, rank):
            return None
        rotated = self.codes.rotated(query[None])
        lists, candidates = self._effort(rank)
        counts = self.codes.counts(passing)
        while candidates <= _MOST_CANDIDATES * len(self.store):
            probe = self.codes.nearest_lists(rotated, lists, counts)
            (rows,) = self.codes.search(rotated, probe, candidates, passing.bits)
            named = _Named(rows[rows >= 0], probe.lists[0])
            near = self._ranked(query, rank, named, candidates, passing, last=probe.lists.shape[1] < lists)
            if near is not None:
                return near
            lists, candidates = _MORE * lists, _MORE * candidates
        return None

    def near_each(self, queries: Vectors, rank: int, passing: FilterMask) -> list[Rows | None]:
        """Return `near` of each of many queries (Q, D) without a filter; hard ones are searched alone."""
        if not self.point.lists or passing.count <= max(self.scanned_rows, rank):
            return [None] * len(queries)
        lists, candidates = self._effort(rank)
        counts = self.codes.counts(passing)

        def name(part: Vectors) -> tuple[Rows, Rows]:
            rotated = self.codes.rotated(part)
            probe = self.codes.nearest_lists(rotated, lists, counts)
            return self.codes.search(rotated, probe, candidates, passing.bits), probe.lists

        parts = [queries[start : start + _AT_ONCE] for start in range(0, len(queries), _AT_ONCE)]
        found: list[Rows | None] = []
        for part, (named, probed) in zip(parts, _ahead(name, parts), strict=True):
            likely = self._ranked_each(part, rank, named, probed, passing)
            found += [
                self.near(query, rank, passing) if rows is None else rows
                for query, rows in zip(part, likely, strict=True)
            ]
        return found

    def _ranked_each(
        self, queries: Vectors, rank: int, named: Rows, probed: Rows, passing: FilterMask
    ) -> list[Rows | None]:
        """Return `_ranked` of each query (Q, D), given candidates (Q, C) and probed lists (Q, L)."""
        # Few hits tell little of how hard a query is.
        judged = max(rank, MEASURED_RANK)
        width, newest = _COMPARED_A_HIT * kept(judged), self._newest(passing)
        if len(newest):
            named_and_newest = np.concatenate((named, np.tile(newest, (len(queries), 1))), axis=1)
        else:
            named_and_newest = named
        complete = (named >= 0).all(axis=1)
        products = np.full((len(queries), width), -np.inf, dtype=np.float32)
        places = np.zeros((len(queries), width), dtype=np.int64)
        for at in np.flatnonzero(complete).tolist():
            found = self.store.best_of(queries[at], width, named_and_newest[at])
            products[at, : len(found[0])], places[at, : len(found[0])] = found
        hits = np.where(places[:, :judged] < named.shape[1], places[:, :judged], 0)
        order = np.zeros((len(queries), self.codes.lists), dtype=np.int64)
        np.put_along_axis(order, probed, np.arange(probed.shape[1])[None], axis=1)
        rows = np.take_along_axis(np.maximum(named, 0), hits, axis=1)
        in_lists = np.take_along_axis(order, self.codes.list_of_row[rows].astype(np.int64), axis=1)
        late = (hits >= _LATE_CANDIDATE * named.shape[1]) | (in_lists >= _LATE_LIST * probed.shape[1])
        likely = products >= products[:, rank - 1 : rank] - 2 * self.store.error
        sure = complete & ~_is_hard(np.count_nonzero(late, axis=1), rank) & ~likely[:, -1]
        rows = np.take_along_axis(named_and_newest, places, axis=1)
        return [rows[at][likely[at]] if sure[at] else None for at in range(len(queries))]

    def _effort(self, rank: int) -> tuple[int, int]:
        """Return how many lists and candidates are first searched for hits down to a rank."""
        deeper = max(1.0, rank / MEASURED_RANK) ** _DEPTH_POWER
        return round(deeper * self.point.lists), max(self.point.candidates, _CANDIDATES_A_HIT * kept(rank))

    def _ranked(
        self,
        query: Vectors,
        rank: int,
        named: _Named,
        candidates: int,
        passing: FilterMask,
        *,
        last: bool = False,
    ) -> Rows | None:
        """Return the candidates that may be hits, or None if the query is hard; `last` if all was probed."""
        newest = self._newest(passing)
        rows = np.concatenate((named.rows, newest)) if len(newest) else named.rows
        if len(rows) < min(kept(rank), passing.count):
            return None
        # Few hits tell little of how hard a query is.
        judged = max(rank, MEASURED_RANK)
        products, places = self.store.best_of(query, _COMPARED_A_HIT * kept(judged), rows)
        hits = places[:judged]
        hits = hits[hits < len(named.rows)]
        order = np.empty(self.codes.lists, dtype=np.int64)
        order[named.lists] = np.arange(len(named.lists))
        in_lists = order[self.codes.list_of_row[named.rows[hits]]]
        late = hits >= _LATE_CANDIDATE * candidates
        if not last:
            late |= in_lists >= _LATE_LIST * len(named.lists)
        if _is_hard(np.count_nonzero(late), rank):
            return None
        return self._likely(query, rank, rows, products, places)

    def _likely(self, query: Vectors, rank: int, rows: Rows, products: Vectors, places: Rows) -> Rows:
        """Return the rows that may be hits: those not clearly below the last one."""
        least = products[min(rank, len(products)) - 1] - 2 * self.store.error
        while products[-1] >= least and len(products) < len(rows):
            products, places = self.store.best_of(query, 2 * len(products), rows)
        likely: Rows = rows[places[products >= least]]
        return likely

    def _newest(self, passing: FilterMask) -> Rows:
        """Return the rows that pass and came after the codes."""
        known = len(self.codes)
        return known + np.flatnonzero(passing.mask[known:])


def _is_hard(late: Any, rank: int) -> Any:
    """Tell for which numbers of late hits a query is hard."""
    return late > max(0, rank - MEASURED_RANK) // _HITS_A_LATE


def _ahead(
    name: Callable[[Vectors], tuple[Rows, Rows]], parts: Sequence[Vectors]
) -> Iterator[tuple[Rows, Rows]]:
    """Give the candidates of each part, named by another thread while those of the part before are ranked."""
    waiting = scanners().submit(name, parts[0]) if parts else None
    for place in range(len(parts)):
        assert waiting is not None
        named = waiting.result()
        if place + 1 < len(parts):
            waiting = scanners().submit(name, parts[place + 1])
        yield named
