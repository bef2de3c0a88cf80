"""Keys, vectors and hits of vector views."""

from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

# exact: scanned; ivf: approximate, in memory; mapped: approximate, vectors on disk; gpu: scanned on a GPU.
ViewName = Literal["exact", "ivf", "mapped", "gpu"]
VIEW_NAMES: Final[tuple[ViewName, ...]] = ("exact", "ivf", "mapped", "gpu")

Keys = NDArray[np.int64]
Scores = NDArray[np.float32]
Vectors = NDArray[np.float32]


class Neighbours(NamedTuple):
    """The nearest vectors to one query, best first.

    Attributes:
        keys: Keys of the images, (N,) with N at most the number asked for; never padded.
        scores: Cosines with the query, (N,), larger is nearer; equal scores are in order of key.
        exact: Whether nothing nearer can have been missed.
    """

    keys: Keys
    scores: Scores
    exact: bool


class After(NamedTuple):
    """Start of a page: behind the hit with this score and key, which had this rank, counted from 1."""

    score: float
    key: int
    rank: int
