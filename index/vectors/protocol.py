"""The interface of vector views."""

from typing import Final, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

# exact: scanned; ivf: approximate, in memory; mapped: approximate, vectors on disk; gpu: scanned on a GPU.
ViewName = Literal["exact", "ivf", "mapped", "gpu"]
VIEW_NAMES: Final[tuple[ViewName, ...]] = ("exact", "ivf", "mapped", "gpu")

Keys = NDArray[np.int64]
Vectors = NDArray[np.float32]


class Neighbours(NamedTuple):
    """The nearest vectors to one query, best first.

    Attributes:
        keys: Keys of the images, (N,) with N at most the number asked for; never padded.
        scores: Cosines with the query, (N,), larger is nearer; equal scores are in order of key.
        exact: Whether nothing nearer can have been missed.
    """

    keys: Keys
    scores: NDArray[np.float32]
    exact: bool


class After(NamedTuple):
    """Start of a page: behind the hit with this score and key, which had this rank, counted from 1."""

    score: float
    key: int
    rank: int


class VectorView(Protocol):
    """Vectors under integer keys, searched by cosine; safe to share between threads."""

    @property
    def dim(self) -> int:
        """Length of a vector."""

    def __len__(self) -> int:
        """Return the number of vectors."""

    @property
    def memory_bytes(self) -> int:
        """Memory that the view holds."""

    def add(self, keys: Keys, vectors: Vectors) -> None:
        """Put in vectors (N, D) of length one under keys (N,), replacing those of keys already there."""

    def remove(self, keys: Keys) -> None:
        """Take out the vectors of these keys; those that are not there are passed over."""

    def keys(self) -> Keys:
        """Return the keys of all vectors, rising."""

    def vectors(self, keys: Keys) -> Vectors:
        """Return the vectors (N, D), of length one, of keys (N,) that are all there.

        Raises:
            KeyError: One is not.
        """

    def search(
        self, query: Vectors, k: int, *, allowed: Keys | None = None, after: After | None = None
    ) -> Neighbours:
        """Find the `k` nearest vectors to a query (D,) of length one.

        Args:
            query: Query vector.
            k: At most this many; fewer only when fewer can be found.
            allowed: Search among these keys only, in rising order; None for all.
            after: Leave out all hits up to this one.
        """

    def scores(self, query: Vectors, keys: Keys) -> tuple[Keys, NDArray[np.float32]]:
        """Return the keys (N,) that the view holds, in their order, and their scores for a query (D,).

        A score is the same as in a search.
        """

    def search_many(self, queries: Vectors, k: int, *, allowed: Keys | None = None) -> list[Neighbours]:
        """Find the `k` nearest vectors to each query (Q, D) of length one, among `allowed` as in `search`."""


def held_vectors(view: VectorView, keys: Keys) -> tuple[Keys, Vectors]:
    """Return those of keys (N,) that a view still holds, in their order, and their vectors."""
    while True:
        try:
            return keys, view.vectors(keys)
        except KeyError as gone:
            keys = keys[keys != gone.args[0]]
