"""Similarity of embedded vectors: the cosine, that of k-blades, or |cosine| where a sign means nothing."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Float = TypeVar("Float", np.float32, np.float64)


def similarity(queries: Vectors, candidates: Vectors) -> Vectors:
    """Similarity of every query to every candidate, from -1 to 1 (ReCo's supplement, equation 1, for blades).

    Args:
        queries: (Q, D) of length one; (Q, k, D) oriented orthonormal bases of k-blades; or (Q, 1, D) of
            length one without a sign, compared by |cosine| as QUEST's normals are.
        candidates: (C, D), (C, k, D) or (C, 1, D).

    Returns:
        (Q, C).
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
    """The similarity where it is an inner product, as a linear probe needs; else, of |cosine|, its square.

    The square is the inner product of the projections onto both lines.

    Args:
        first: (N, D), (N, k, D) or (N, 1, D).
        second: (M, ...) alike.

    Returns:
        (N, M).
    """
    alike = similarity(first, second).astype(np.float64)
    return alike**2 if first.shape[1:-1] == (1,) else alike


def determinants(matrices: NDArray[Float]) -> NDArray[Float]:
    """Determinants (...) of matrices (..., k, k)."""
    found: NDArray[Float]
    if matrices.shape[-1] == 2:
        # Written out: LAPACK takes many times as long for so small a matrix.
        first, second = matrices[..., 0, :], matrices[..., 1, :]
        found = first[..., 0] * second[..., 1] - first[..., 1] * second[..., 0]
    else:
        found = np.linalg.det(matrices)
    return found


def as_blades(vectors: Vectors, blades: int, *, unsigned: bool = False) -> Vectors:
    """Vectors (N, k * D) as an encoder gives them, in the shape that `similarity` knows their kind by.

    Args:
        vectors: (N, D); those of k-blades are k basis vectors one after another.
        blades: k.
        unsigned: Whether a vector and its opposite are the same.

    Returns:
        (N, k, D) of k-blades and of vectors without a sign; all others as they are.
    """
    if blades == 1 and not unsigned:
        return vectors
    return vectors.reshape(len(vectors), blades, vectors.shape[1] // blades)
