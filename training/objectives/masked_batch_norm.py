"""Batch normalisation over the real entries of padded sequences."""

import torch
from torch import Tensor, nn

from training.common.distributed import gather_rows
from training.objectives.mixtures import Mixtures


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

    def forward(self, mixtures: Mixtures, mask: Tensor) -> Mixtures:
        """Normalise with the mean and variance of the mixtures whose `mask` (B, K) is True.

        What is done to each mixture can be done to the parts, since the weights sum to 1.
        """
        mean, variance = _over_processes(*mixtures.moments(mask))
        scale = self.weight * torch.rsqrt(variance + self.eps)
        parts = torch.addcmul(self.bias - mean * scale, mixtures.parts, scale)
        return Mixtures(mixtures.weights, parts)


def _over_processes(count: Tensor, mean: Tensor, deviations: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (D,) and biased variance (D,) over all processes, of what each has.

    Deviations from each process's own mean are combined, without the cancellation that sums of squares
    suffer from.
    """
    parts = gather_rows(torch.cat([count, mean, deviations]).unsqueeze(0))
    counts, means, squares = torch.tensor_split(parts, (1, 1 + len(mean)), dim=1)
    total = counts.sum().clamp(min=1)
    mean = (counts * means).sum(dim=0) / total
    between = (counts * (means - mean).square()).sum(dim=0)
    return mean, (squares.sum(dim=0) + between) / total
