"""Exact search: as many rows are ranked as it takes for no other to be among the hits."""

from typing import Final

import numpy as np

from index.vectors.filter_mask import FilterMask
from index.vectors.gpu import GpuScan
from index.vectors.id_map import Rows
from index.vectors.protocol import After, Keys, Neighbours, Scores, Vectors
from index.vectors.ranking import page_offset, ranked
from index.vectors.storage.vector_store import VectorStore

# Candidates beyond those asked for that are ranked exactly: rounding may have put them in another order.
_SPARE: Final = 8


def search_exactly(
    query: Vectors,
    k: int,
    passing: FilterMask,
    after: After | None,
    keys: Keys,
    rows: VectorStore,
    gpu: GpuScan | None = None,
) -> Neighbours:
    """Find a page of hits by a scan, on the GPU if it can; see `VectorView.search`.

    `keys` are those of all rows (N,).
    """
    spare, error = _SPARE, rows.error
    while True:
        wanted = spare + (k if after is None else k + after.rank)
        if wanted >= passing.count and after is None:
            likely = passing.rows
        else:
            count = min(wanted, passing.count)
            near = None if gpu is None else gpu.nearest(query[None], count, passing)[0]
            if gpu is not None and near is not None:
                error = gpu.error
            products, likely = near or rows.nearest(query, count, passing)
            if after is not None:
                # A walk through all pages would rank the rows of all pages before, each time.
                likely = likely[products <= np.float32(after.score) + np.float32(2 * error)]
        found, scores = ranked(query, keys, likely, rows.get)
        first = page_offset(found, scores, after)
        if wanted >= passing.count or _is_certain(scores, first + k, error):
            return Neighbours(found[first : first + k], scores[first : first + k], exact=True)
        spare *= 4


def scan_each(
    queries: Vectors,
    k: int,
    passing: FilterMask,
    keys: Keys,
    rows: VectorStore,
    gpu: GpuScan | None = None,
) -> list[Neighbours]:
    """Find the `k` nearest vectors to each query (Q, D) by one scan; arguments as in `search_exactly`."""
    count = min(k + _SPARE, passing.count)
    near: list[Rows | None] = [None] * len(queries)
    if gpu is not None:
        near = [None if found is None else found[1] for found in gpu.nearest(queries, count, passing)]
    left = [place for place, found in enumerate(near) if found is None]
    error = rows.error if gpu is None or len(left) == len(near) else gpu.error
    if left:
        scanned = rows.nearest_many(queries[left], count, passing.mask)
        for place, found in zip(left, scanned, strict=True):
            near[place] = found
    hits = []
    for query, likely in zip(queries, near, strict=True):
        assert likely is not None
        found, scores = ranked(query, keys, likely, rows.get)
        if len(found) >= passing.count or _is_certain(scores, k, error):
            hits.append(Neighbours(found[:k], scores[:k], exact=True))
        else:
            hits.append(search_exactly(query, k, passing, None, keys, rows, gpu))
    return hits


def _is_certain(scores: Scores, last: int, error: float) -> bool:
    """Say whether no row that was not found can rank before the `last` of those found, best first."""
    # No row left out has a larger product in FAISS's scan than the last one found.
    margin = np.float32(2 * error)
    return last < len(scores) and bool(scores[last - 1] > scores[-1] + margin)
