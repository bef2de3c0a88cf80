"""Exact search among k-blades: each is k vectors that span a subspace, and no inner product ranks them."""

import numpy as np
from numpy.typing import NDArray

from index.vectors.flat.flat_view import FlatView
from index.vectors.protocol import After, Keys, Neighbours, Vectors
from training.evaluation.similarity import determinants, similarity


class BladeView(FlatView):
    """All blades, compared with the query one by one: k * k dot products and a determinant each.

    A blade is held as an oriented orthonormal basis, so that its cosine with another is the determinant of
    their dot products (ReCo's supplement, section 2).
    """

    def __init__(self, dim: int, blades: int) -> None:
        super().__init__(dim)
        self._blades = blades

    def add(self, keys: Keys, vectors: Vectors) -> None:
        """Put in blades (N, k * D), which need not be orthonormal; see `VectorView`."""
        super().add(keys, oriented_bases(vectors, self._blades))

    def search(
        self, query: Vectors, k: int, *, allowed: Keys | None = None, after: After | None = None
    ) -> Neighbours:
        """Find the `k` blades nearest to a query (k * D,); see `VectorView`."""
        return super().search(self._basis(query), k, allowed=allowed, after=after)

    def scores(self, query: Vectors, keys: Keys) -> tuple[Keys, NDArray[np.float32]]:
        """Return the keys (N,) that the view holds, and their scores; see `VectorView`."""
        return super().scores(self._basis(query), keys)

    def _rough_scores(self, query: Vectors, vectors: Vectors) -> Vectors:
        rough: Vectors = similarity(self._bases(query[None]), self._bases(vectors))[0]
        return rough

    def _scores(self, query: Vectors, vectors: Vectors) -> NDArray[np.float64]:
        own = self._bases(query[None])[0]
        products = np.einsum("nid,jd->nij", self._bases(vectors), own, dtype=np.float64)
        scores: NDArray[np.float64] = determinants(products)
        return scores

    def _basis(self, query: Vectors) -> Vectors:
        basis: Vectors = oriented_bases(query[None], self._blades)[0]
        return basis

    def _bases(self, vectors: Vectors) -> Vectors:
        return vectors.reshape(len(vectors), self._blades, self.dim // self._blades)


def oriented_bases(vectors: Vectors, blades: int) -> Vectors:
    """Return blades (N, k * D) as orthonormal bases of the same subspaces and orientations.

    Rounding and a change of length are undone by it. A blade whose vectors are not independent stays a
    basis of some subspace: its cosines mean nothing, but they are numbers.
    """
    bases = vectors.reshape(len(vectors), blades, -1).astype(np.float64)
    q, r = np.linalg.qr(bases.transpose(0, 2, 1))
    signs = np.where(np.diagonal(r, axis1=1, axis2=2) < 0, -1.0, 1.0)
    oriented = (q * signs[:, None, :]).transpose(0, 2, 1)
    return np.ascontiguousarray(oriented.reshape(len(vectors), -1), dtype=np.float32)
