"""Pooling of local features (B, K, C) to (B, C) over real entries."""

from typing import Literal

import torch
from torch import Tensor, nn

from training.common.errors import RecipeError

PoolingName = Literal["cls", "eos", "mean", "max", "attention"]

_HEADS = 8


class Pooling(nn.Module):
    """First or last real entry, mean or maximum over real entries, or attention.

    Attention has 8 heads, with the mean of the real entries as query (LoVT, section 3.1).

    Raises:
        RecipeError: The width isn't divisible by the heads of attention.
    """

    def __init__(self, name: PoolingName, width: int) -> None:
        super().__init__()
        self.name = name
        if name == "attention":
            if width % _HEADS:
                raise RecipeError(
                    f"Attention pooling needs a width that {_HEADS} divides, but the tower's is {width}."
                )
            self.attention = nn.MultiheadAttention(width, _HEADS, batch_first=True)

    def forward(self, features: Tensor, mask: Tensor) -> tuple[Tensor, Tensor | None]:
        """Pool the entries (B, K, C) whose mask (B, K) is True; every row has at least one.

        Returns:
            The pooled feature (B, C), and the attention weights (B, K), averaged over heads; they sum to 1.
        """
        rows = torch.arange(features.shape[0], device=features.device)
        match self.name:
            case "cls":
                return features[rows, mask.int().argmax(dim=1)], None
            case "eos":
                positions = torch.arange(mask.shape[1], device=mask.device)
                return features[rows, (mask * positions).argmax(dim=1)], None
            case "mean":
                return masked_mean(features, mask), None
            case "max":
                return features.masked_fill(~mask.unsqueeze(-1), float("-inf")).amax(dim=1), None
            case "attention":
                query = masked_mean(features, mask).unsqueeze(1)
                pooled, weights = self.attention(query, features, features, key_padding_mask=~mask)
                return pooled.squeeze(1), weights.squeeze(1)


def masked_mean(features: Tensor, mask: Tensor) -> Tensor:
    """Mean over real entries: (B, K, C) and (B, K) give (B, C)."""
    kept = mask.unsqueeze(-1).to(features.dtype)
    return (features * kept).sum(dim=1) / kept.sum(dim=1).clamp(min=1)


def pool_sentences(tokens: Tensor, sentence_ids: Tensor, count: int = 0) -> tuple[Tensor, Tensor]:
    """Maximum over the tokens (B, T, C) of each sentence, by channel (LoVT, section 3.1).

    Args:
        tokens: (B, T, C).
        sentence_ids: (B, T), sentence number of each token; -1: none.
        count: K; 0: computed from `sentence_ids`.

    Returns:
        The sentences (B, K, C), zeros where a text has fewer than K, and their mask (B, K).
    """
    count = count or int(sentence_ids.max()) + 1
    # Tokens without a sentence go to an extra one, which is dropped.
    index = sentence_ids.where(sentence_ids >= 0, count)
    shape = (len(tokens), count + 1)
    real = index.new_zeros(shape, dtype=torch.bool).scatter(1, index, True)
    sentences = tokens.new_zeros(*shape, tokens.shape[-1]).scatter_reduce(
        1, index.unsqueeze(-1).expand_as(tokens), tokens, "amax", include_self=False
    )
    return sentences[:, :count], real[:, :count]
