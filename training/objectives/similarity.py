"""Cosine similarity of two batches of embeddings, in full precision."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

NORM_EPS = 1e-7


def full_precision(values: Tensor) -> Tensor:
    """The values as float32; float64 stays as it is."""
    return values if values.dtype == torch.float64 else values.float()


def cosine_matrix(a: Tensor, b: Tensor) -> Tensor:
    """Cosine of every row of one batch with every row of another, outside autocast.

    Rows are divided by max(norm, 1e-7), so a zero row has cosine 0 with everything and a finite gradient.

    Args:
        a: (N, D), any float type.
        b: (M, D), any float type.

    Returns:
        (N, M) in float32, or in float64 when an input is float64.
    """
    with torch.autocast(a.device.type, enabled=False):
        left = normalize(full_precision(a), dim=1, eps=NORM_EPS)
        right = normalize(full_precision(b), dim=1, eps=NORM_EPS)
        return left @ right.T


def off_diagonal(matrix: Tensor) -> Tensor:
    """(N, N) bool, True everywhere but on the diagonal."""
    return ~torch.eye(matrix.shape[0], dtype=torch.bool, device=matrix.device)


def negative_pairs(cosines: Tensor, positive_mask: Tensor | None) -> Tensor:
    """(B, B) bool, True where a pair of items does not match.

    Args:
        cosines: (B, B).
        positive_mask: (B, B) bool as in `Features`; None: only the diagonal matches.
    """
    unmatched = off_diagonal(cosines)
    return unmatched if positive_mask is None else unmatched & ~positive_mask


def mean_cosines(cosines: Tensor, positive_mask: Tensor | None) -> dict[str, Tensor]:
    """Detached mean cosine of the diagonal and of the pairs that do not match, 0 without such pairs."""
    detached = cosines.detach()
    negatives = negative_pairs(detached, positive_mask)
    return {
        "positive_cosine": detached.diagonal().mean(),
        "negative_cosine": (detached * negatives).sum() / negatives.sum().clamp(min=1),
    }
