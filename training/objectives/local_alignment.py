"""Contrast within a sample: each local entry finds its counterpart among the entries of the same sample."""

import torch
from torch import Tensor

from training.objectives.local_entries import masked_scores


def grid_positives(height: int, width: int, *, reach: float = 0.5) -> Tensor:
    """How much each cell of a grid counts as a positive of each other cell (LoVT, section 3.3).

    Cells up to `reach` away count exp(-d), those further away nothing; d is the distance in cells over
    sqrt(height^2 + width^2). Each row is divided by its sum, so the matrix is not symmetric.

    Args:
        height: In cells.
        width: In cells.
        reach: Largest distance of a positive; 0: only the cell itself.

    Returns:
        (height * width, height * width) in float64, the cells row by row.
    """
    cells = torch.cartesian_prod(torch.arange(height), torch.arange(width))
    squared = (cells.unsqueeze(1) - cells).square().sum(dim=2)
    diagonal = height**2 + width**2
    # Squares are whole numbers, so that cells that lie exactly at the reach count on every machine.
    near = squared <= reach**2 * diagonal
    closeness = torch.exp(-(squared.double() / diagonal).sqrt()) * near
    return closeness / closeness.sum(dim=1, keepdim=True)


def local_contrastive(
    cosines: Tensor,
    weights: Tensor,
    mask: Tensor,
    *,
    temperature: float = 0.3,
    positives: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Cross entropy of each entry's positives among the entries of its sample (equations 9-14).

    Args:
        cosines: (B, K, K), entry k of one side with entry l of the other; both sides have the same padding.
        weights: (B, K), zero where padded; a row sums to 1.
        mask: (B, K) bool, True where an entry is real.
        temperature: Of the softmax.
        positives: (K, K) weight of entry l as a positive of entry k; None: an entry's only positive is its
            counterpart. What falls on padded entries is shared out among the real ones.

    Returns:
        Two scalars, means over the batch: from the rows to the columns and back.
    """
    if positives is not None:
        positives = positives * mask.unsqueeze(1)
        total = positives.sum(dim=2, keepdim=True)
        positives = positives / total.clamp(min=torch.finfo(positives.dtype).tiny)
    scores = cosines / temperature
    there, back = (_one_direction(direction, weights, mask, positives) for direction in (scores, scores.mT))
    return there, back


def _one_direction(scores: Tensor, weights: Tensor, mask: Tensor, positives: Tensor | None) -> Tensor:
    matched = scores.diagonal(dim1=1, dim2=2) if positives is None else (positives * scores).sum(dim=2)
    return (weights * (masked_scores(scores, mask).logsumexp(dim=2) - matched)).sum(dim=1).mean()
