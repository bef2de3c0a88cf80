"""Cosines between the local entries of each sample."""

from torch import Tensor

from training.objectives.similarity import NORM_EPS


def self_cosines(a: Tensor) -> Tensor:
    """Cosines (B, K, K) of the entries (B, K, D) of each sample with each other.

    As of `a @ a.mT`, with one matrix product in backward instead of two: the product of `a` and a constant
    copy has half of the gradient, its transpose the other half. First derivatives only.
    """
    half = a @ a.detach().mT
    products = half + half.mT - half.detach()
    squares = products.diagonal(dim1=1, dim2=2)
    return over_norms(products, squares, squares)


def over_norms(products: Tensor, row_squares: Tensor, column_squares: Tensor) -> Tensor:
    """Cosines from dot products and squared norms.

    The products are divided instead of the vectors: that is (B, K, L) numbers and not (B, K, D). Norms count
    as 1e-7 at least, so a zero vector has cosine 0 with everything and a finite gradient.

    Args:
        products: (B, K, L).
        row_squares: (B, K), squared norms of the vectors of rows.
        column_squares: (B, L), of those of columns.
    """
    rows, columns = (square.clamp(min=NORM_EPS**2).rsqrt() for square in (row_squares, column_squares))
    return products * rows.unsqueeze(2) * columns.unsqueeze(1)
