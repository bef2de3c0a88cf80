"""Cosines between the local entries of each sample."""

from torch import Tensor
from torch.linalg import vecdot

from training.objectives.similarity import NORM_EPS


def local_cosines(a: Tensor, b: Tensor) -> Tensor:
    """Cosine of every entry with every entry of the same sample.

    The products are divided by the norms, at least 1e-7, instead of the vectors: that is (B, K, L) numbers
    and not (B, K, D). A zero vector has cosine 0 with everything and a finite gradient.

    Args:
        a: (B, K, D) in full precision.
        b: (B, L, D) in full precision.

    Returns:
        (B, K, L).
    """
    products = a @ b.mT
    squares: tuple[Tensor, Tensor] = (vecdot(a, a), vecdot(b, b))
    return over_norms(products, *squares)


def self_cosines(a: Tensor) -> Tensor:
    """Cosines (B, K, K) of the entries (B, K, D) of each sample with each other.

    As `local_cosines(a, a)`, with one matrix product in backward instead of two: the product of `a` and a
    constant copy has half of the gradient, its transpose the other half. First derivatives only.
    """
    half = a @ a.detach().mT
    products = half + half.mT - half.detach()
    squares = products.diagonal(dim1=1, dim2=2)
    return over_norms(products, squares, squares)


def over_norms(products: Tensor, row_squares: Tensor, column_squares: Tensor) -> Tensor:
    """Dot products (B, K, L) over the norms, at least 1e-7, of rows and columns with these squares."""
    rows, columns = (square.clamp(min=NORM_EPS**2).rsqrt() for square in (row_squares, column_squares))
    return products * rows.unsqueeze(2) * columns.unsqueeze(1)
