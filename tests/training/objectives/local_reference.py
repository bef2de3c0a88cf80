"""Batches with regions and sentences of different numbers, and weights of a module that are plain numbers."""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from training.models.features import Features, ModalityFeatures
from training.objectives.local import LocalEntries

DIM = 5
SENTENCES = (3, 1, 2, 3)


@torch.no_grad()
def set_plain_weights(module: nn.Module, *, span: int = 5, divisor: int = 4) -> None:
    """Give a module weights and biases that are multiples of a fraction."""
    for number, parameter in enumerate(module.parameters(), start=1):
        values = torch.arange(parameter.numel(), dtype=torch.float64)
        parameter.copy_(((values * 7 + number) % span - span // 2).view_as(parameter) / divisor)


def random_entries(counts: tuple[int, ...], seed: int = 0, dim: int = DIM) -> LocalEntries:
    """Entries in float64: so many real ones in each sample, then zeros; random weights."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.arange(max(counts)) < torch.tensor(counts).unsqueeze(1)
    values = torch.randn((*mask.shape, dim), generator=generator, dtype=torch.float64)
    weights = torch.rand(mask.shape, generator=generator, dtype=torch.float64) * mask
    return LocalEntries(values * mask.unsqueeze(2), mask, weights / weights.sum(dim=1, keepdim=True))


def local_batch(grid: tuple[int, int] = (2, 3), sentences: tuple[int, ...] = SENTENCES) -> Features:
    """Images of a grid of regions and texts of several sentences, all real ones weighted at random."""
    generator = torch.Generator().manual_seed(1)
    image, text = torch.randn((2, len(sentences), DIM), generator=generator, dtype=torch.float64)
    regions = random_entries((grid[0] * grid[1],) * len(sentences), seed=2)
    parts = random_entries(sentences, seed=3)
    return Features({"image": _with_entries(image, regions), "text": _with_entries(text, parts)})


def _with_entries(embedding: Tensor, entries: LocalEntries) -> ModalityFeatures:
    return ModalityFeatures(
        embedding, local=entries.values, local_mask=entries.mask, local_weights=entries.weights
    )


def without(batch: Features, source: str, name: str) -> Features:
    """The batch without one feature of a modality or view."""
    nothing: dict[str, Any] = {name: None}
    changed = {
        key: replace(features, **nothing) if key == source else features
        for key, features in batch.modalities.items()
    }
    return replace(batch, modalities=changed)


def real_vectors(entries: LocalEntries) -> list[list[Tensor]]:
    """The real vectors of each sample."""
    return [
        [vector for vector, real in zip(vectors, reals, strict=True) if real]
        for vectors, reals in zip(entries.values, entries.mask, strict=True)
    ]


def plain_cosines(a: Tensor, b: Tensor) -> Tensor:
    """Cosines (B, K, L) of vectors (B, K, D) and (B, L, D), normalized first."""
    return normalize(a, dim=2) @ normalize(b, dim=2).mT


def slow_cosine(a: Tensor, b: Tensor) -> float:
    """Cosine of two vectors."""
    return float(a @ b) / (math.sqrt(float(a @ a)) * math.sqrt(float(b @ b)))
