"""The true neighbours: every vector is compared with every query, in plain NumPy."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.search.made_vectors import Vectors

Keys = NDArray[np.int64]
_BLOCK: Final = 20_000


@dataclass(frozen=True, slots=True)
class Nearest:
    """Keys (Q, k) of the nearest vectors, best first, and their cosines (Q, k)."""

    keys: Keys
    scores: Vectors


def nearest(vectors: Vectors, queries: Vectors, k: int, *, among: Keys | None = None) -> Nearest:
    """Find the `k` nearest of vectors (N, D) to queries (Q, D), all or those of rising keys `among`."""
    total = len(vectors) if among is None else len(among)
    keys = np.empty((len(queries), 0), dtype=np.int64)
    scores = np.empty((len(queries), 0), dtype=np.float32)
    for start in range(0, total, _BLOCK):
        place = slice(start, min(start + _BLOCK, total))
        block = np.arange(place.start, place.stop) if among is None else among[place]
        held = vectors[place] if among is None else vectors[block]
        scores = np.concatenate((scores, queries @ held.T), axis=1)
        keys = np.concatenate((keys, np.broadcast_to(block, (len(queries), len(block)))), axis=1)
        if scores.shape[1] > k:
            best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
            scores = np.take_along_axis(scores, best, axis=1)
            keys = np.take_along_axis(keys, best, axis=1)
    order = np.lexsort((keys, -scores), axis=1)
    return Nearest(np.take_along_axis(keys, order, axis=1), np.take_along_axis(scores, order, axis=1))
