"""How hits are put in order, and where a page begins."""

import numpy as np
from numpy.typing import NDArray

from index.vectors.protocol import After, Keys, Vectors

Scores = NDArray[np.float32]


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


def behind(keys: Keys, scores: Scores, after: After | None) -> int:
    """Return how many of the ranked hits lie at `after` or before it."""
    if after is None:
        return 0
    score = np.float32(after.score)
    return int(np.count_nonzero((scores > score) | ((scores == score) & (keys <= after.key))))
