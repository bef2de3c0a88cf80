"""Batch normalisation over the real entries of padded sequences."""

import torch
from torch import Tensor, nn

from training.distributed import gather_rows


class MaskedBatchNorm(nn.Module):
    """Batch normalisation whose statistics leave padding out and span all processes.

    It always uses the statistics of the batch, in evaluation too: it serves layers that are part of a loss
    and never embed a single item. So it keeps no running statistics.
    """

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, values: Tensor, mask: Tensor) -> Tensor:
        """Normalise (B, K, D) with the mean and variance of the entries whose `mask` (B, K) is True."""
        mean, variance = _moments(values, mask)
        scale = self.weight * torch.rsqrt(variance + self.eps)
        return torch.addcmul(self.bias - mean * scale, values, scale)


def _moments(values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (D,) and biased variance (D,) of the real entries of all processes.

    Each process contributes count, mean and squared deviations from its own mean, which are combined without
    the cancellation that sums of squares suffer from.
    """
    kept = mask.to(values.dtype).flatten()
    rows = values.flatten(0, 1)
    count = kept.sum().reshape(1)
    mean = kept @ rows / count.clamp(min=1)
    # Squared deviations have no derivative by the mean.
    deviations = kept @ (rows - mean.detach()).square()
    parts = gather_rows(torch.cat([count, mean, deviations]).unsqueeze(0))
    counts, means, deviation_sums = torch.tensor_split(parts, (1, 1 + len(mean)), dim=1)
    total = counts.sum().clamp(min=1)
    mean = (counts * means).sum(dim=0) / total
    between = (counts * (means - mean).square()).sum(dim=0)
    return mean, (deviation_sums.sum(dim=0) + between) / total
