"""Different hits instead of alike ones: maximal marginal relevance."""

import numpy as np
from numpy.typing import NDArray

from index.vectors.protocol import Keys, Vectors
from training.evaluation.similarity import as_blades, similarity


def diversify(
    keys: Keys,
    scores: NDArray[np.float32],
    vectors: Vectors,
    *,
    diversity: float,
    count: int,
    blades: int = 1,
    unsigned: bool = False,
) -> NDArray[np.int64]:
    """Choose hits one after another, each near the query and unlike those chosen before it.

    The next one has the largest (1 - diversity) * score - diversity * likeness, its likeness being its
    largest cosine with one already chosen (Carbonell and Goldstein, SIGIR 1998). Equals go by key.

    Args:
        keys: Keys of the candidates (N,).
        scores: Scores of the candidates (N,), larger is nearer.
        vectors: Vectors of the candidates (N, D), of length one.
        diversity: 0 leaves the order of scores, 1 looks for the most different only.
        count: Number of candidates to choose.
        blades: k of a k-blade model, whose vectors are oriented bases; else 1.
        unsigned: Whether a vector and its opposite are the same.

    Returns:
        The places of the chosen among the candidates (min(count, N),), best first.
    """
    wanted = min(count, len(keys))
    chosen = np.empty(wanted, dtype=np.int64)
    # In order of key, the first of equals is the one with the smallest key.
    order = np.argsort(keys, kind="stable")
    relevance = (1 - diversity) * scores[order].astype(np.float64)
    ranked = as_blades(np.ascontiguousarray(vectors[order]), blades, unsigned=unsigned)
    likeness = np.zeros(len(keys), dtype=np.float64)
    best = int(np.argmax(scores[order])) if wanted else 0
    for place in range(wanted):
        chosen[place] = best
        alike = similarity(ranked[best : best + 1], ranked)[0].astype(np.float64)
        likeness = alike if place == 0 else np.maximum(likeness, alike)
        relevance[best] = -np.inf
        best = int(np.argmax(relevance - diversity * likeness))
    places: NDArray[np.int64] = order[chosen]
    return places
