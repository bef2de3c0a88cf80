"""Stacked cross attention: how alike an image and a text are, region by word."""

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu, normalize

from training.models.config import PairAttentionConfig

_EPS = 1e-7
_LEAK = 0.1


def pair_similarities(
    regions: Tensor, region_mask: Tensor, words: Tensor, word_mask: Tensor, config: PairAttentionConfig
) -> Tensor:
    """How alike every image is to every text (N, M), by the regions of one and the words of the other.

    Each query, a word or a region as `config.queries` says, looks at the entries of the other side; the pair
    is as alike as its queries are to what they see (Lee et al. 2018).

    Args:
        regions: (N, K, D), not normalised; zeros where padded.
        region_mask: (N, K) bool, True where a region is real.
        words: (M, T, D) likewise.
        word_mask: (M, T) bool.
        config: Of the attention.
    """
    if config.queries == "words":
        return _similarities(words, word_mask, regions, region_mask, config)
    return _similarities(regions, region_mask, words, word_mask, config).T


def _similarities(
    queries: Tensor, query_mask: Tensor, entries: Tensor, entry_mask: Tensor, config: PairAttentionConfig
) -> Tensor:
    """Of every item with entries (N, K, D) with every item with queries (M, T, D): (N, M).

    What a query sees is never made: with unit vectors, its product with the query is a sum of cosines, and
    its length follows from the entries' products with each other.
    """
    queries, entries = (normalize(values, dim=2, eps=_EPS) for values in (queries, entries))
    cosines = torch.einsum("nkd,mtd->nmtk", entries, queries)
    weights = _attention(cosines, query_mask, entry_mask, config.sharpness)
    seen = (weights * cosines).sum(dim=3)
    products = torch.einsum("nmtk,nkl->nmtl", weights, entries @ entries.mT)
    lengths = (products * weights).sum(dim=3).clamp(min=_EPS**2).sqrt()
    alike = seen / lengths
    if config.pooling == "mean":
        counts = query_mask.sum(dim=1).clamp(min=1)
        return (alike * query_mask).sum(dim=2) / counts
    lowest = torch.finfo(alike.dtype).min
    scaled = (config.pooling_sharpness * alike).masked_fill(~query_mask, lowest)
    return scaled.logsumexp(dim=2) / config.pooling_sharpness


def _attention(cosines: Tensor, query_mask: Tensor, entry_mask: Tensor, sharpness: float) -> Tensor:
    """The weights (N, M, T, K) of a query's entries, which sum to 1 over the real ones.

    Each entry's clipped cosines have length 1 over the queries first, so that queries compete for it.
    """
    clipped = leaky_relu(cosines, _LEAK).masked_fill(~query_mask.unsqueeze(2), 0)
    scores = sharpness * normalize(clipped, dim=2, eps=_EPS)
    masked = scores.masked_fill(~entry_mask[:, None, None], torch.finfo(scores.dtype).min)
    return masked.softmax(dim=3)
