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
    return a @ b.mT * _inverse_norms(a).unsqueeze(2) * _inverse_norms(b).unsqueeze(1)


def self_cosines(a: Tensor) -> Tensor:
    """Cosines (B, K, K) of the entries (B, K, D) of each sample with each other.

    As `local_cosines(a, a)`, with one matrix product in backward instead of two: the product of `a` and a
    constant copy has half of the gradient, its transpose the other half. First derivatives only.
    """
    half = a @ a.detach().mT
    products = half + half.mT - half.detach()
    inverse = _inverse_norms(a)
    return products * inverse.unsqueeze(2) * inverse.unsqueeze(1)


def _inverse_norms(a: Tensor) -> Tensor:
    squared: Tensor = vecdot(a, a)
    return squared.clamp(min=NORM_EPS**2).rsqrt()
