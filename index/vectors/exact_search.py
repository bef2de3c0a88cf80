"""Exact search: as many rows are ranked as it takes for no other to be among the hits."""

from collections.abc import Callable
from typing import Final

import numpy as np

from index.vectors.filter_mask import FilterMask
from index.vectors.id_map import Rows
from index.vectors.protocol import After, Keys, Neighbours, Vectors
from index.vectors.ranking import page_offset, ranked, ranked_many
from index.vectors.storage.faiss_rows import Found
from index.vectors.storage.vector_store import VectorStore

# Candidates beyond those asked for that are ranked exactly: rounding may have put them in another order.
SPARE: Final = 8


def search_exactly(
    query: Vectors,
    k: int,
    passing: FilterMask,
    after: After | None,
    keys: Keys,
    rows: VectorStore,
    on_gpu: Callable[[Vectors, int, FilterMask], Found | None] | None = None,
) -> Neighbours:
    """Find the `k` nearest vectors to a query (D,) of length one by a scan; see `VectorView`.

    Args:
        query: What to search for.
        k: How many hits.
        passing: Which rows may be found.
        after: The hit behind which the page begins, if it is not the first.
        keys: The keys (N,) of all rows.
        rows: The vectors.
        on_gpu: Scans on a GPU, or tells that it does not.
    """
    spare = SPARE
    while True:
        wanted = spare + (k if after is None else k + after.rank)
        likely = _candidates(query, wanted, passing, after, rows, on_gpu)
        found = Neighbours(*ranked(query, keys, likely, rows.get), exact=True)
        first = page_offset(found.keys, found.scores, after)
        if wanted >= passing.count or is_certain(found, first + k, rows):
            page = slice(first, first + k)
            return Neighbours(found.keys[page], found.scores[page], exact=True)
        spare *= 4


def _candidates(
    query: Vectors,
    wanted: int,
    passing: FilterMask,
    after: After | None,
    rows: VectorStore,
    on_gpu: Callable[[Vectors, int, FilterMask], Found | None] | None,
) -> Rows:
    """Return the `wanted` nearest rows, without those whose products put them before the page."""
    if after is None and wanted >= passing.count:
        return passing.rows
    wanted = min(wanted, passing.count)
    near = None if on_gpu is None else on_gpu(query, wanted, passing)
    products, likely = near or rows.nearest(query, wanted, passing)
    if after is None:
        return likely
    # A walk through all pages would rank the rows of all pages before, each time.
    return likely[products <= np.float32(after.score) + np.float32(2 * rows.error)]


def is_certain(found: Neighbours, last: int, rows: VectorStore) -> bool:
    """Say whether no row that was not found can rank before the `last` of `found`."""
    # No row left out has a larger product in FAISS's scan than the last one found.
    margin = np.float32(2 * rows.error)
    return last < len(found.keys) and bool(found.scores[last - 1] > found.scores[-1] + margin)


def scan_each(
    queries: Vectors, k: int, passing: FilterMask, keys: Keys, rows: VectorStore
) -> list[Neighbours]:
    """Find the `k` nearest vectors to each query (Q, D) of length one by one scan; see `VectorView`.

    Args:
        queries: What to search for.
        k: How many hits for each.
        passing: Which rows may be found.
        keys: The keys (N,) of all rows.
        rows: The vectors.
    """
    near = rows.nearest_many(queries, min(k + SPARE, passing.count), passing.mask)
    found = []
    for query, one in zip(queries, ranked_many(queries, keys, near, rows.get), strict=True):
        if len(one.keys) >= passing.count or is_certain(one, k, rows):
            found.append(Neighbours(one.keys[:k], one.scores[:k], exact=True))
        else:
            found.append(search_exactly(query, k, passing, None, keys, rows))
    return found
