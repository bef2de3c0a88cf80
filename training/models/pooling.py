"""Pooling of local features (B, K, C) into one (B, C), over real entries only."""

from typing import Literal

import torch
from torch import Tensor, nn

from training.errors import RecipeError

PoolingName = Literal["cls", "eos", "mean", "max", "attention"]

_HEADS = 8


class Pooling(nn.Module):
    """Base: maps features (B, K, C) and a mask (B, K) to the pooled (B, C) and weights (B, K) or None."""

    def forward(self, features: Tensor, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """Pool the entries whose mask is True; every row has at least one."""
        return self.pool(features, mask), None

    def pool(self, features: Tensor, mask: Tensor) -> Tensor:
        """The pooled features (B, C) of a pooling without weights."""
        return masked_mean(features, mask)


def masked_mean(features: Tensor, mask: Tensor) -> Tensor:
    """Mean over real entries: (B, K, C) and (B, K) give (B, C)."""
    kept = mask.unsqueeze(-1).to(features.dtype)
    return (features * kept).sum(dim=1) / kept.sum(dim=1).clamp(min=1)


class MeanPooling(Pooling):
    """Mean over real entries."""


class MaxPooling(Pooling):
    """Largest value over real entries, number by number."""

    def pool(self, features: Tensor, mask: Tensor) -> Tensor:
        """The maximum (B, C)."""
        return features.masked_fill(~mask.unsqueeze(-1), float("-inf")).amax(dim=1)


class ClsPooling(Pooling):
    """The first entry."""

    def pool(self, features: Tensor, mask: Tensor) -> Tensor:
        """The first entry (B, C)."""
        return features[:, 0]


class EosPooling(Pooling):
    """The last real entry."""

    def pool(self, features: Tensor, mask: Tensor) -> Tensor:
        """The last real entry (B, C)."""
        positions = torch.arange(mask.shape[1], device=mask.device)
        last = torch.where(mask, positions, 0).amax(dim=1)
        return features[torch.arange(len(features), device=features.device), last]


class AttentionPooling(Pooling):
    """Attention with 8 heads whose query is the mean of the real entries (LoVT, section 3.1)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        if width % _HEADS:
            raise RecipeError(
                f"Attention pooling needs a width that {_HEADS} divides, but the tower's is {width}."
            )
        self.attention = nn.MultiheadAttention(width, _HEADS, batch_first=True)

    def forward(self, features: Tensor, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """The pooled features (B, C) and the weights (B, K), averaged over the heads; they sum to 1."""
        query = masked_mean(features, mask).unsqueeze(1)
        pooled, weights = self.attention(query, features, features, key_padding_mask=~mask)
        return pooled.squeeze(1), weights.squeeze(1)


def build_pooling(name: PoolingName, width: int) -> Pooling:
    """The pooling of that name for features of this width."""
    if name == "attention":
        return AttentionPooling(width)
    return {"cls": ClsPooling, "eos": EosPooling, "mean": MeanPooling, "max": MaxPooling}[name]()
