"""Similarity of k-blades: oriented k-dimensional subspaces, each spanned by k vectors (ReCo's supplement)."""

from collections.abc import Sequence
from itertools import combinations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

NORM_EPS = 1e-7
PARALLEL_EPS = 1e-6
CHUNK_ENTRIES = 2**24


def blade_cosines(u: Tensor, v: Tensor) -> Tensor:
    """Cosine (N, M) of every k-blade (N, k, D) with every other (M, k, D) (ReCo's supplement, equation 4).

    With A_ab = <u_a, v_b>, B_ab = <u_a, u_b> and C_ab = <v_a, v_b> it is det(A) / sqrt(det(B) det(C)). The
    lengths of the vectors and any mixing of a blade's vectors with positive determinant don't change it;
    swapping two vectors flips its sign. With k = 1 it is the cosine. A blade that spans less than k
    dimensions (parallel or zero vectors) has cosine 0 with everything, up to rounding, and a finite gradient.
    Blades are float32 or float64.

    Raises:
        ValueError: k or D differ.
    """
    if u.ndim != 3 or u.shape[1:] != v.shape[1:]:
        raise ValueError(f"blades of shapes {tuple(u.shape)} and {tuple(v.shape)} cannot be compared")
    left, right = orthonormal(u), orthonormal(v)
    chunk = max(1, CHUNK_ENTRIES // max(1, len(v) * u.shape[1] ** 2))
    if len(u) <= chunk:
        return _determinants(left, right)
    return torch.cat([_recomputed_determinants(rows, right) for rows in torch.split(left, chunk)])


def orthonormal(blades: Tensor) -> Tensor:
    """An orthonormal basis of each blade (N, k, D), with its orientation, in the type of the input.

    It is the Q of a thin QR whose R has a positive diagonal, so the sign of det(R) is always 1. Torch's own
    QR has the gradient NaN for a zero vector and one of pure rounding (1e11 in a trial) for parallel vectors;
    the quotient of determinants is 0 / 0 for both. Gram-Schmidt with a floor under each length has neither: a
    vector that adds less than 1e-6 of its length to the span of those before it is divided by that floor
    instead of its remainder, and so counts as almost nothing. Above the floor nothing is changed. The
    remainder of nearly parallel vectors has no digits left in float32, so this small part runs in float64.
    """
    basis: list[Tensor] = []
    for vector in blades.double().unbind(1):
        rest = vector
        for axis in basis:
            rest = rest - (axis * rest).sum(-1, keepdim=True) * axis
        floor = (PARALLEL_EPS * vector.detach().norm(dim=-1, keepdim=True)).clamp(min=NORM_EPS)
        basis.append(rest / torch.maximum(rest.norm(dim=-1, keepdim=True), floor))
    return torch.stack(basis, dim=1).to(blades.dtype)


def _determinants(u: Tensor, v: Tensor) -> Tensor:
    """Determinant (N, M) of the k x k inner products of every pair of blades (N, k, D) and (M, k, D)."""
    count, k = u.shape[:2]
    products = u.flatten(0, 1) @ v.flatten(0, 1).T
    entries = products.view(count, k, len(v), k).permute(1, 3, 0, 2).contiguous()
    return determinant([row.unbind(0) for row in entries.unbind(0)])


def determinant(entries: Sequence[Sequence[Tensor]]) -> Tensor:
    """Determinants of many small matrices, given entry by entry as tensors of one shape.

    Expands along one row after another and keeps the minors, k 2^(k-1) products in all. For the few vectors
    of a blade this is faster than a decomposition of every matrix, and as a polynomial it has an exact
    gradient where a matrix is singular too.
    """
    size = len(entries)
    minors: dict[tuple[int, ...], Tensor] = {(column,): entries[0][column] for column in range(size)}
    for row in range(1, size):
        minors = {
            columns: _expand(entries[row], columns, minors) for columns in combinations(range(size), row + 1)
        }
    return minors[tuple(range(size))]


def _expand(row: Sequence[Tensor], columns: tuple[int, ...], minors: dict[tuple[int, ...], Tensor]) -> Tensor:
    """The minor of these columns, expanded along its last row."""
    last = len(columns) - 1
    total = row[columns[last]] * minors[columns[:last]]
    for column in range(last):
        part = row[columns[column]] * minors[columns[:column] + columns[column + 1 :]]
        total = total + part if (last - column) % 2 == 0 else total - part
    return total


def _recomputed_determinants(u: Tensor, v: Tensor) -> Tensor:
    """Determinants whose k x k entries are not kept for backward but computed again there."""
    if not torch.is_grad_enabled():
        return _determinants(u, v)
    result: Tensor = checkpoint(_determinants, u, v, use_reentrant=False, preserve_rng_state=False)
    return result
