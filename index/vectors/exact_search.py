"""Exact search: as many rows are ranked as it takes for no other to be among the hits."""

from collections.abc import Callable
from typing import Final

import numpy as np

from index.vectors.filter_mask import FilterMask
from index.vectors.protocol import After, Keys, Neighbours, Scores, Vectors
from index.vectors.ranking import page_offset, ranked
from index.vectors.storage.vector_store import Found, VectorStore

# Candidates beyond those asked for that are ranked exactly: rounding may have put them in another order.
_SPARE: Final = 8


def search_exactly(
    query: Vectors,
    k: int,
    passing: FilterMask,
    after: After | None,
    keys: Keys,
    rows: VectorStore,
    on_gpu: Callable[[Vectors, int, FilterMask], Found | None] | None = None,
) -> Neighbours:
    """Find a page of hits by a scan; see `VectorView.search`.

    `keys` are those of all rows (N,); `on_gpu` scans as `VectorStore.nearest`, or gives None if it cannot.
    """
    spare = _SPARE
    while True:
        wanted = spare + (k if after is None else k + after.rank)
        if wanted >= passing.count and after is None:
            likely = passing.rows
        else:
            count = min(wanted, passing.count)
            near = None if on_gpu is None else on_gpu(query, count, passing)
            products, likely = near or rows.nearest(query, count, passing)
            if after is not None:
                # A walk through all pages would rank the rows of all pages before, each time.
                likely = likely[products <= np.float32(after.score) + np.float32(2 * rows.error)]
        found, scores = ranked(query, keys, likely, rows.get)
        first = page_offset(found, scores, after)
        if wanted >= passing.count or _is_certain(scores, first + k, rows):
            return Neighbours(found[first : first + k], scores[first : first + k], exact=True)
        spare *= 4


def scan_each(
    queries: Vectors, k: int, passing: FilterMask, keys: Keys, rows: VectorStore
) -> list[Neighbours]:
    """Find the `k` nearest vectors to each query (Q, D) by one scan; arguments as in `search_exactly`."""
    near = rows.nearest_many(queries, min(k + _SPARE, passing.count), passing.mask)
    hits = []
    for query, likely in zip(queries, near, strict=True):
        found, scores = ranked(query, keys, likely, rows.get)
        if len(found) >= passing.count or _is_certain(scores, k, rows):
            hits.append(Neighbours(found[:k], scores[:k], exact=True))
        else:
            hits.append(search_exactly(query, k, passing, None, keys, rows))
    return hits


def _is_certain(scores: Scores, last: int, rows: VectorStore) -> bool:
    """Say whether no row that was not found can rank before the `last` of those found, best first."""
    # No row left out has a larger product in FAISS's scan than the last one found.
    margin = np.float32(2 * rows.error)
    return last < len(scores) and bool(scores[last - 1] > scores[-1] + margin)
