"""Stacked cross attention: similarity of images and texts by regions and words."""

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu, normalize

from training.models.config import PairAttentionConfig

_EPS = 1e-7
_LEAK = 0.1


def pair_similarities(
    regions: Tensor, region_mask: Tensor, words: Tensor, word_mask: Tensor, config: PairAttentionConfig
) -> Tensor:
    """Similarity (N, M) of every image and text by regions and words (Lee et al. 2018).

    Each query (a word or a region, see `config.queries`) attends to the entries of the other side; the pair's
    similarity aggregates the queries' similarities to what they attend to. Regions (N, K, D) and words
    (M, T, D) aren't normalised; masks (N, K) and (M, T) are True for real entries.
    """
    if config.queries == "words":
        return _similarities(words, word_mask, regions, region_mask, config)
    return _similarities(regions, region_mask, words, word_mask, config).T


def _similarities(
    queries: Tensor, query_mask: Tensor, entries: Tensor, entry_mask: Tensor, config: PairAttentionConfig
) -> Tensor:
    """Similarity (N, M) of items with entries (N, K, D) and items with queries (M, T, D).

    The attended vector isn't computed: with unit vectors, its product with the query is a sum of cosines, and
    its length follows from the products of the entries.
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
    """Attention weights (N, M, T, K) of each query's entries, which sum to 1 over the real ones.

    First, each entry's clipped cosines are normalised over the queries, so that queries compete for it.
    """
    clipped = leaky_relu(cosines, _LEAK).masked_fill(~query_mask.unsqueeze(2), 0)
    scores = sharpness * normalize(clipped, dim=2, eps=_EPS)
    masked = scores.masked_fill(~entry_mask[:, None, None], torch.finfo(scores.dtype).min)
    return masked.softmax(dim=3)
