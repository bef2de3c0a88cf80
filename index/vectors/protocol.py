"""Keys, vectors and hits of vector views, vectors as the catalogue keeps them, and the ranking of candidates.

The catalogue keeps float16, little-endian.
"""

from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

# exact: scanned; ivf: approximate, in memory; mapped: approximate, vectors on disk; gpu: scanned on a GPU.
ViewName = Literal["exact", "ivf", "mapped", "gpu"]
VIEW_NAMES: Final[tuple[ViewName, ...]] = ("exact", "ivf", "mapped", "gpu")

Keys = NDArray[np.int64]
Rows = NDArray[np.int64]
Mask = NDArray[np.bool_]
NOTHING: Final[Keys] = np.empty(0, dtype=np.int64)
Scores = NDArray[np.float32]
Vectors = NDArray[np.float32]
# Extra rows: rounding may have put them in another order.
_SPARE: Final = 4
# Vectors whose float64 sums stay in the processor's cache.
_RANKED_AT_ONCE: Final = 512


class Neighbours(NamedTuple):
    """The nearest vectors to one query, best first.

    Attributes:
        keys: Keys of the images, (N,) with N at most the requested number; never padded.
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


def rerank_depth(rank: int) -> int:
    """Return how many of the candidates are ranked exactly for hits down to a rank."""
    return rank + _SPARE + rank // 8


def has_boundary_ties(scores: Scores, rank: int) -> bool:
    """Return whether ties with the hit at a rank fill the candidates, so that some may have been left out.

    Equal vectors have equal codes, of which a search names any; a page is to have those of the lowest keys.
    `rerank_depth(rank)` candidates were ranked, best first, if there were as many.
    """
    last = rerank_depth(rank)
    return len(scores) >= last and bool(scores[last - 1] == scores[rank - 1])


def cosines(query: Vectors, vectors: Vectors | NDArray[np.float64]) -> Scores:
    """Return the scores (..., N) of vectors (..., N, D) with queries (D,) or (..., 1, D).

    They are summed row by row in float64: equal vectors have equal scores in any position.
    """
    wide = vectors.astype(np.float64, copy=False)
    scores: Scores = np.vecdot(wide, query.astype(np.float64)).astype(np.float32)
    return scores


def best_first(keys: Keys, scores: Scores) -> tuple[Keys, Scores]:
    """Return keys and scores best first; equal scores are in order of key."""
    order = np.lexsort((keys, -scores))
    return keys[order], scores[order]


def ranked(query: Vectors, keys: Keys, rows: Rows, vectors: Callable[[Rows], Vectors]) -> tuple[Keys, Scores]:
    """Return the keys of rows (R,) and their scores with a query (D,), best first.

    `keys` are those of all rows (N,); `vectors` gives the vectors of some, which are read in parts.
    """
    scores = np.empty(len(rows), dtype=np.float32)
    for at in range(0, len(rows), _RANKED_AT_ONCE):
        part = slice(at, at + _RANKED_AT_ONCE)
        scores[part] = cosines(query, vectors(rows[part]))
    return best_first(keys[rows], scores)


def page_offset(keys: Keys, scores: Scores, after: After | None) -> int:
    """Return how many of the ranked hits are at `after` or before it."""
    if after is None:
        return 0
    score = np.float32(after.score)
    return int(np.count_nonzero((scores > score) | ((scores == score) & (keys <= after.key))))


def encode_vectors(vectors: Vectors) -> list[bytes]:
    """Turn vectors (N, D) into one value for each row."""
    return [vector.tobytes() for vector in vectors.astype("<f2")]


def decode_vectors(values: Sequence[bytes], dim: int) -> Vectors:
    """Turn stored values into vectors (N, D), made exactly of length one again after the rounding.

    Raises:
        ValueError: A value is not `dim` numbers long.
    """
    return unit(rounded_vectors(values, dim))


def rounded_vectors(values: Sequence[bytes], dim: int) -> Vectors:
    """Turn stored values into vectors (N, D) as they were rounded, so of length one but for the rounding.

    Raises:
        ValueError: A value is not `dim` numbers long.
    """
    if set(map(len, values)) - {2 * dim}:
        raise ValueError(f"a stored vector does not have {dim} numbers")
    stored = np.frombuffer(b"".join(values), dtype="<f2").reshape(len(values), dim)
    return stored.astype(np.float32)


def unit(vectors: Vectors) -> Vectors:
    """Make vectors (N, D) of length one, in place; zero stays zero."""
    lengths = np.sqrt(np.vecdot(vectors, vectors))
    if not lengths.all():
        lengths[lengths == 0] = 1
    vectors /= lengths[:, None]
    return vectors
