"""Exact ranking of candidates, and the start of a page."""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from index.vectors.id_map import Rows
from index.vectors.protocol import After, Keys, Neighbours, Vectors

Scores = NDArray[np.float32]

# Rows beyond those asked for: rounding may have put them in another order.
_SPARE: Final = 4
# Vectors whose float64 sums stay in the processor's cache.
_RANKED_AT_ONCE: Final = 512


def rerank_depth(rank: int) -> int:
    """Return how many of the candidates are ranked exactly for hits down to a rank."""
    return rank + _SPARE + rank // 8


def has_boundary_ties(scores: Scores, rank: int) -> bool:
    """Tell whether so many are as near as the hit at a rank that more of them may have been left out.

    Equal vectors have equal codes, of which a search names any; a page is to have those of the lowest keys.

    Args:
        scores: Scores of the candidates, best first.
        rank: Rank of the last hit; `rerank_depth(rank)` candidates were ranked for it, if there were as many.
    """
    last = rerank_depth(rank)
    return len(scores) >= last and bool(scores[last - 1] == scores[rank - 1])


def cosines(query: Vectors, vectors: Vectors | NDArray[np.float64]) -> Scores:
    """Return the scores (..., N) of vectors (..., N, D) with queries (D,) or (..., 1, D).

    They are summed row by row in float64: equal vectors have equal scores wherever they lie.
    """
    wide = vectors.astype(np.float64, copy=False)
    scores: Scores = np.vecdot(wide, query.astype(np.float64)).astype(np.float32)
    return scores


def best_first(keys: Keys, scores: Scores) -> tuple[Keys, Scores]:
    """Return keys and scores best first; equal scores are in order of key."""
    order = np.lexsort((keys, -scores))
    return keys[order], scores[order]


def ranked(query: Vectors, keys: Keys, rows: Rows, vectors: Callable[[Rows], Vectors]) -> tuple[Keys, Scores]:
    """Return the keys (R,) of rows and their scores with a query (D,), best first.

    Args:
        query: Query vector.
        keys: The keys (N,) of all rows.
        rows: Rows to rank; for a deep page their vectors are read in parts.
        vectors: Gives the vectors of rows.
    """
    if len(rows) <= _RANKED_AT_ONCE:
        return best_first(keys[rows], cosines(query, vectors(rows)))
    scores = np.empty(len(rows), dtype=np.float32)
    for at in range(0, len(rows), _RANKED_AT_ONCE):
        part = slice(at, at + _RANKED_AT_ONCE)
        scores[part] = cosines(query, vectors(rows[part]))
    return best_first(keys[rows], scores)


def ranked_many(
    queries: Vectors, keys: Keys, near: Rows, vectors: Callable[[Rows], Vectors]
) -> list[Neighbours]:
    """Rank the candidates (Q, C) of each query (Q, D), of which -1 is none.

    Args:
        queries: Query vectors.
        keys: The keys (N,) of all rows.
        near: The rows of the candidates.
        vectors: Gives the vectors of rows.
    """
    if near.shape[1] > _RANKED_AT_ONCE:
        each = zip(queries, near, strict=True)
        found = [ranked(query, keys, rows[rows >= 0], vectors) for query, rows in each]
        return [Neighbours(*hits, exact=False) for hits in found]
    step = max(1, _RANKED_AT_ONCE // max(1, near.shape[1]))
    parts = [slice(start, start + step) for start in range(0, len(queries), step)]
    return [hits for part in parts for hits in _ranked_part(queries[part], keys, near[part], vectors)]


def _ranked_part(
    queries: Vectors, keys: Keys, near: Rows, vectors: Callable[[Rows], Vectors]
) -> list[Neighbours]:
    rows = np.maximum(near, 0)
    scores = cosines(queries[:, None], vectors(rows.ravel()).reshape(*rows.shape, queries.shape[1]))
    scores[near < 0] = -np.inf
    keys = keys[rows]
    order = np.lexsort((keys, -scores))
    keys, scores = np.take_along_axis(keys, order, axis=1), np.take_along_axis(scores, order, axis=1)
    counts = np.count_nonzero(near >= 0, axis=1).tolist()
    return [
        Neighbours(its_keys[:count], its_scores[:count], exact=False)
        for its_keys, its_scores, count in zip(keys, scores, counts, strict=True)
    ]


def page_offset(keys: Keys, scores: Scores, after: After | None) -> int:
    """Return how many of the ranked hits lie at `after` or before it."""
    if after is None:
        return 0
    score = np.float32(after.score)
    return int(np.count_nonzero((scores > score) | ((scores == score) & (keys <= after.key))))
