"""Golden matrices, small batches, and references that follow the formulas pair by pair."""

import math
from typing import Final

import torch
from torch import Tensor

from training.models.features import Features, ModalityFeatures

U: Final = torch.tensor([[1, 2, 0, 1], [0, 1, 3, -1], [2, -1, 1, 0]], dtype=torch.float64)
V: Final = torch.tensor([[1, 1, 1, 1], [-1, 2, 2, 0], [2, 0, -1, 1]], dtype=torch.float64)
C: Final = torch.tensor(
    [
        [0.816496580928, 0.408248290464, 0.5],
        [0.452267016867, 0.804030252207, -0.492365963917],
        [0.408248290464, -0.272165526976, 0.5],
    ],
    dtype=torch.float64,
)

# Matches in addition to the partners: none, and some, not all of them in both directions.
MATCHES: Final = ((), ((0, 2), (2, 0), (1, 3)))


def features(image: Tensor, text: Tensor, positive_mask: Tensor | None = None) -> Features:
    """Features of two global embeddings."""
    return Features({"image": ModalityFeatures(image), "text": ModalityFeatures(text)}, positive_mask)


def random_embeddings(batch: int, dim: int = 5, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Two batches (B, D) in float64."""
    generator = torch.Generator().manual_seed(seed)
    image, text = torch.randn((2, batch, dim), generator=generator, dtype=torch.float64)
    return image, text


def mask_of(batch: int, *pairs: tuple[int, int]) -> Tensor:
    """The diagonal and these pairs."""
    mask = torch.eye(batch, dtype=torch.bool)
    for row, column in pairs:
        mask[row, column] = True
    return mask


def slow_info_nce(cosines: Tensor, temperature: float, image_weight: float, mask: Tensor) -> float:
    """InfoNCE with explicit sums over the pairs that count."""

    def direction(rows: list[list[float]], matches: list[list[bool]]) -> float:
        total = 0.0
        for i, row in enumerate(rows):
            kept = [value for j, value in enumerate(row) if j == i or not matches[i][j]]
            total += math.log(sum(math.exp(value / temperature) for value in kept)) - row[i] / temperature
        return total / len(rows)

    image_to_text = direction(cosines.tolist(), mask.tolist())
    text_to_image = direction(cosines.T.tolist(), mask.T.tolist())
    return image_weight * image_to_text + (1 - image_weight) * text_to_image
