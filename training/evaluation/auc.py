"""Area under the ROC curve of scores, by the rank statistic of Mann and Whitney."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def mean_ranks(values: NDArray[Any]) -> NDArray[np.float64]:
    """Ranks (N,) from 1, lowest first; equal values share the mean of their ranks."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    means: NDArray[np.float64] = ends - (counts - 1) / 2
    return means[place]


def area_under_roc(scores: NDArray[Any], positive: NDArray[np.bool_]) -> float | None:
    """Area under the ROC curve: how often a positive has the higher score (N,), where ties count half.

    From 0 to 1, chance is .5; None without a positive or without a negative.
    """
    hits = int(positive.sum())
    misses = len(positive) - hits
    if not hits or not misses:
        return None
    # The statistic of Mann and Whitney.
    above = float(mean_ranks(scores)[positive].sum()) - hits * (hits + 1) / 2
    return above / (hits * misses)
