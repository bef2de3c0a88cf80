"""Fusion of rankings by their ranks."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from index.vectors.protocol import Keys


def fuse(rankings: Sequence[Keys], k0: int = 60) -> tuple[Keys, NDArray[np.float64]]:
    """Fuse rankings by the sum of 1 / (k0 + rank) over those that a key is in.

    Cormack, Clarke and Buettcher, "Reciprocal rank fusion outperforms Condorcet and individual rank learning
    methods", SIGIR 2009.

    Args:
        rankings: Distinct keys (N,) of each ranking, best first.
        k0: Rank constant; the larger, the less the first ranks dominate.

    Returns:
        The keys of all rankings and their sums, best first; equal sums are in order of key.
    """
    keys = np.concatenate([np.empty(0, dtype=np.int64), *rankings])
    fused, places = np.unique(keys, return_inverse=True)
    sums = np.zeros(len(fused), dtype=np.float64)
    ranks = np.concatenate([np.empty(0), *(np.arange(1.0, len(ranking) + 1) for ranking in rankings)])
    np.add.at(sums, places, 1 / (k0 + ranks))
    order = np.lexsort((fused, -sums))
    return fused[order], sums[order]
