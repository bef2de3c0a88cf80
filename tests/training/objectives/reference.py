"""The golden matrices of ReCo and InfoNCE, and slow references that follow the formulas term by term."""

import math

import torch
from torch import Tensor

from training.models.features import Features, ModalityFeatures
from training.objectives.base import ObjectiveContext
from training.objectives.similarity import Similarities

CONTEXT = ObjectiveContext(dim=4)

U = torch.tensor([[1, 2, 0, 1], [0, 1, 3, -1], [2, -1, 1, 0]], dtype=torch.float64)
V = torch.tensor([[1, 1, 1, 1], [-1, 2, 2, 0], [2, 0, -1, 1]], dtype=torch.float64)
C = torch.tensor(
    [
        [0.816496580928, 0.408248290464, 0.5],
        [0.452267016867, 0.804030252207, -0.492365963917],
        [0.408248290464, -0.272165526976, 0.5],
    ],
    dtype=torch.float64,
)


def features(image: Tensor, text: Tensor, positive_mask: Tensor | None = None) -> Features:
    """Features of two global embeddings."""
    return Features({"image": ModalityFeatures(image), "text": ModalityFeatures(text)}, positive_mask)


def of_square(matrix: Tensor, positive_mask: Tensor | None = None) -> Similarities:
    """Similarities of a whole batch."""
    return Similarities.of_square(matrix, positive_mask)


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
    size = len(cosines)

    def row_loss(row: list[float], matches: list[bool], own: int) -> float:
        kept = [value for j, value in enumerate(row) if j == own or not matches[j]]
        return math.log(sum(math.exp(value / temperature) for value in kept)) - row[own] / temperature

    rows, columns = cosines.tolist(), cosines.T.tolist()
    ahead, matching = mask.tolist(), mask.T.tolist()
    image_to_text = sum(row_loss(rows[i], ahead[i], i) for i in range(size)) / size
    text_to_image = sum(row_loss(columns[i], matching[i], i) for i in range(size)) / size
    return image_weight * image_to_text + (1 - image_weight) * text_to_image


def slow_reco(cosines: Tensor, weight: float, mask: Tensor, *, one_sided: bool) -> float:
    """ReCo with explicit sums."""
    total = 0.0
    for i, row in enumerate(cosines.tolist()):
        for j, value in enumerate(row):
            if i == j:
                total += (1 - value) ** 2
            elif not mask[i, j]:
                total += weight * (max(0.0, value) if one_sided else value) ** 2
    return total
