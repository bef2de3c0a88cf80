"""How hits are put in order, and where a page begins."""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from index.vectors.positions import Rows
from index.vectors.protocol import After, Keys, Vectors

Scores = NDArray[np.float32]

# Rows beyond those asked for: rounding may have put them in another order.
_SPARE: Final = 4
# Vectors whose float64 sums stay in the processor's cache.
RANKED_AT_ONCE: Final = 512


def kept(rank: int) -> int:
    """Return how many of the candidates are ranked exactly for hits down to a rank."""
    return rank + _SPARE + rank // 8


def cosines(query: Vectors, vectors: Vectors) -> Scores:
    """Return the scores (..., N) of vectors (..., N, D) with queries (D,) or (..., 1, D).

    They are summed row by row in float64: equal vectors have equal scores wherever they lie.
    """
    scores: Scores = np.vecdot(vectors.astype(np.float64), query.astype(np.float64)).astype(np.float32)
    return scores


def best_first(keys: Keys, scores: Scores) -> tuple[Keys, Scores]:
    """Return keys and scores best first; equal scores are in order of key."""
    order = np.lexsort((keys, -scores))
    return keys[order], scores[order]


def ranked(query: Vectors, keys: Keys, rows: Rows, vectors: Callable[[Rows], Vectors]) -> tuple[Keys, Scores]:
    """Return the keys (R,) of rows and their scores with a query (D,), best first.

    Args:
        query: What is searched for.
        keys: The keys (N,) of all rows.
        rows: Which are ranked; for a page far behind only some of their vectors are taken at once.
        vectors: Gives the vectors of rows.
    """
    if len(rows) <= RANKED_AT_ONCE:
        return best_first(keys[rows], cosines(query, vectors(rows)))
    scores = np.empty(len(rows), dtype=np.float32)
    for at in range(0, len(rows), RANKED_AT_ONCE):
        part = slice(at, at + RANKED_AT_ONCE)
        scores[part] = cosines(query, vectors(rows[part]))
    return best_first(keys[rows], scores)


def behind(keys: Keys, scores: Scores, after: After | None) -> int:
    """Return how many of the ranked hits lie at `after` or before it."""
    if after is None:
        return 0
    score = np.float32(after.score)
    return int(np.count_nonzero((scores > score) | ((scores == score) & (keys <= after.key))))
