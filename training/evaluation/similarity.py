"""Similarity of embedded vectors: the cosine, or that of k-blades."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
Float = TypeVar("Float", np.float32, np.float64)


def similarity(queries: Vectors, candidates: Vectors) -> Vectors:
    """How alike every query is to every candidate, from -1 to 1 (ReCo's supplement, equation 1, for blades).

    Args:
        queries: (Q, D) of length one, or (Q, k, D) oriented orthonormal bases of k-blades.
        candidates: (C, D), or (C, k, D).

    Returns:
        (Q, C).
    """
    if queries.ndim == 2:
        return queries @ candidates.T
    count, k, dim = queries.shape
    products = queries.reshape(-1, dim) @ candidates.reshape(-1, dim).T
    return determinants(products.reshape(count, k, len(candidates), k).transpose(0, 2, 1, 3))


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


def as_blades(vectors: Vectors, blades: int) -> Vectors:
    """Vectors (N, k * D) as an encoder gives them, as (N, k, D) where there are several to a blade."""
    return vectors if blades == 1 else vectors.reshape(len(vectors), blades, -1)
