"""Pooling of local features (B, K, C) into one (B, C), over real entries only."""

from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn

from training.common.errors import RecipeError

PoolingName = Literal["cls", "eos", "mean", "max", "attention"]

_HEADS = 8


class Pooling(nn.Module, ABC):
    """Base of all poolings."""

    @abstractmethod
    def forward(self, features: Tensor, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """Pool the entries whose mask is True; every row has at least one.

        Args:
            features: (B, K, C).
            mask: (B, K).

        Returns:
            The pooled feature (B, C), and the weights (B, K) of a pooling that has such.
        """


def masked_mean(features: Tensor, mask: Tensor) -> Tensor:
    """Mean over real entries: (B, K, C) and (B, K) give (B, C)."""
    kept = mask.unsqueeze(-1).to(features.dtype)
    return (features * kept).sum(dim=1) / kept.sum(dim=1).clamp(min=1)


def pool_sentences(tokens: Tensor, sentence_ids: Tensor, count: int = 0) -> tuple[Tensor, Tensor]:
    """The largest value over the tokens of each sentence, number by number (LoVT, section 3.1).

    Args:
        tokens: (B, T, C).
        sentence_ids: (B, T), the number of each token's sentence; -1 where a token belongs to none.
        count: K, above every number; 0: no more than there are.

    Returns:
        The sentences (B, K, C), zeros where a text has fewer than K, and which are real (B, K).
    """
    count = count or int(sentence_ids.max()) + 1
    # Tokens without a sentence share one behind all others, which is dropped.
    index = sentence_ids.where(sentence_ids >= 0, count)
    shape = (len(tokens), count + 1)
    real = index.new_zeros(shape, dtype=torch.bool).scatter(1, index, True)
    sentences = tokens.new_zeros(*shape, tokens.shape[-1]).scatter_reduce(
        1, index.unsqueeze(-1).expand_as(tokens), tokens, "amax", include_self=False
    )
    return sentences[:, :count], real[:, :count]


class MeanPooling(Pooling):
    """Mean over real entries."""

    def forward(self, features: Tensor, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """The mean (B, C)."""
        return masked_mean(features, mask), None


class MaxPooling(Pooling):
    """Largest value over real entries, number by number."""

    def forward(self, features: Tensor, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """The maximum (B, C)."""
        return features.masked_fill(~mask.unsqueeze(-1), float("-inf")).amax(dim=1), None


class ClsPooling(Pooling):
    """The first real entry."""

    def forward(self, features: Tensor, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """The first real entry (B, C)."""
        rows = torch.arange(features.shape[0], device=features.device)
        return features[rows, mask.int().argmax(dim=1)], None


class EosPooling(Pooling):
    """The last real entry."""

    def forward(self, features: Tensor, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """The last real entry (B, C)."""
        rows = torch.arange(features.shape[0], device=features.device)
        positions = torch.arange(mask.shape[1], device=mask.device)
        return features[rows, (mask * positions).argmax(dim=1)], None


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
    match name:
        case "cls":
            return ClsPooling()
        case "eos":
            return EosPooling()
        case "mean":
            return MeanPooling()
        case "max":
            return MaxPooling()
        case "attention":
            return AttentionPooling(width)
