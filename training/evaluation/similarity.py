"""Similarity of embedded vectors: the cosine, that of k-blades, or |cosine| for vectors without a sign."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Float = TypeVar("Float", np.float32, np.float64)


def similarity(queries: Vectors, candidates: Vectors) -> Vectors:
    """Similarity (Q, C) of queries to candidates, from -1 to 1 (ReCo's supplement, equation 1, for blades).

    Both are unit vectors (N, D); oriented orthonormal bases of k-blades (N, k, D); or unit vectors without a
    sign (N, 1, D), compared by |cosine|, such as QUEST's normals.
    """
    if queries.ndim == 2:
        return queries @ candidates.T
    count, k, dim = queries.shape
    products = queries.reshape(-1, dim) @ candidates.reshape(-1, dim).T
    if k == 1:
        alike: Vectors = np.abs(products)
        return alike
    return determinants(products.reshape(count, k, len(candidates), k).transpose(0, 2, 1, 3))


def inner_products(first: Vectors, second: Vectors) -> NDArray[np.float64]:
    """Kernel (N, M) for linear probes: the similarity, or the square of |cosine|.

    The square is the inner product of the projections onto both lines; |cosine| itself isn't a kernel.
    """
    alike = similarity(first, second).astype(np.float64)
    return alike**2 if first.shape[1:-1] == (1,) else alike


def determinants(matrices: NDArray[Float]) -> NDArray[Float]:
    """Determinants (...) of matrices (..., k, k)."""
    values: NDArray[Float]
    if matrices.shape[-1] == 2:
        # Written out, since LAPACK is many times slower for such small matrices.
        first, second = matrices[..., 0, :], matrices[..., 1, :]
        values = first[..., 0] * second[..., 1] - first[..., 1] * second[..., 0]
    else:
        values = np.linalg.det(matrices)
    return values


def as_blades(vectors: Vectors, blades: int, *, unsigned: bool = False) -> Vectors:
    """Reshape an encoder's vectors (N, k * D) so that `similarity` recognizes their kind.

    (N, k, D) for k-blades, (N, 1, D) for vectors without a sign, otherwise unchanged.
    """
    if blades == 1 and not unsigned:
        return vectors
    return vectors.reshape(len(vectors), blades, vectors.shape[1] // blades)
