"""Cross attention between the local entries of two modalities."""

import math

import torch
from torch import Tensor, nn

from training.objectives.local_entries import LocalEntries, masked_scores
from training.objectives.masked_batch_norm import MaskedBatchNorm
from training.objectives.mixtures import Mixtures


class CrossAttention(nn.Module):
    """One head; every projection and the normalisation are shared by both modalities (LoVT, section 3.2).

    Queries and keys have the same projection, so one matrix of scores serves both directions.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.key = _projection(width)
        self.value = _projection(width)
        self.output = _projection(width)
        self.norm = MaskedBatchNorm(width)

    def forward(self, first: LocalEntries, second: LocalEntries) -> tuple[Mixtures, Mixtures]:
        """What each entry of one modality finds in the other.

        Args:
            first: K entries of width D.
            second: M entries of width D.

        Returns:
            (B, K, D), the second modality seen from the first; (B, M, D), the first seen from the second.
            Places of padded entries hold numbers without meaning.
        """
        scores = self._scores(first.values, second.values)
        return self._attend(scores, first, second), self._attend(scores.mT, second, first)

    def _scores(self, first: Tensor, second: Tensor) -> Tensor:
        """Scaled dot products of keys (B, K, M).

        (W a + c) . (W b + c) = a . W'(W b + c) + c . (W b + c), so only the shorter side meets the matrix W.
        """
        if first.shape[1] < second.shape[1]:
            return self._scores(second, first).transpose(1, 2)
        keys: Tensor = self.key(second)
        offset = (keys @ self.key.bias).unsqueeze(1)
        products = torch.baddbmm(offset, first, (keys @ self.key.weight).mT)
        return products / math.sqrt(keys.shape[2])

    def _attend(self, scores: Tensor, queries: LocalEntries, entries: LocalEntries) -> Mixtures:
        """Projected and normalised means of the entries, one for each query.

        Attention sums to 1, so projecting and averaging change places; the shorter side is projected.
        """
        attention = masked_scores(scores, entries.mask).softmax(dim=2)
        if scores.shape[1] < scores.shape[2]:
            found = Mixtures.of_vectors(self.output(self.value(attention @ entries.values)))
        else:
            found = Mixtures(attention, self.output(self.value(entries.values)))
        normalised: Mixtures = self.norm(found, queries.mask)
        return normalised


def _projection(width: int) -> nn.Linear:
    """A square linear layer that keeps the variance of its input at the start."""
    layer = nn.Linear(width, width)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="linear")
    nn.init.zeros_(layer.bias)
    return layer
