"""Many vectors that are means of few: what attention makes of values, without writing it out."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.linalg import vecdot

from training.objectives.local_cosines import over_norms


@dataclass(frozen=True, slots=True)
class Mixtures:
    """The vectors `weights @ parts` of each sample; 49 regions that attend to 5 sentences have 5 parts.

    Attributes:
        weights: (B, K, M), every row sums to 1.
        parts: (B, M, D).
    """

    weights: Tensor
    parts: Tensor

    @classmethod
    def of_vectors(cls, vectors: Tensor) -> "Mixtures":
        """Vectors (B, K, D) as mixtures of themselves."""
        one = torch.eye(vectors.shape[1], dtype=vectors.dtype, device=vectors.device)
        return cls(one.expand(len(vectors), -1, -1), vectors)

    def vectors(self) -> Tensor:
        """The mixtures written out (B, K, D)."""
        return self.weights @ self.parts

    def cosines(self, others: Tensor) -> Tensor:
        """Cosine of other vectors (B, L, D) with the mixtures of the same sample (B, L, K).

        A mixture in which the parts cancel out counts as a zero vector.
        """
        products = (others @ self.parts.mT) @ self.weights.mT
        gram = self.parts @ self.parts.mT
        squares = ((self.weights @ gram) * self.weights).sum(dim=2)
        rounding = torch.finfo(gram.dtype).eps * gram.diagonal(dim1=1, dim2=2).amax(dim=1, keepdim=True)
        return over_norms(products, vecdot(others, others), torch.maximum(squares, rounding.detach()))

    def moments(self, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """How many mixtures are real (1,), their mean (D,) and their squared deviations from it (D,).

        Args:
            mask: (B, K) bool, True where a mixture is real.
        """
        real = self.weights * mask.unsqueeze(2)
        count = mask.sum().to(real.dtype).reshape(1)
        mean = real.sum(dim=1).flatten() @ self.parts.flatten(0, 1) / count.clamp(min=1)
        # Squared deviations have no derivative by the mean.
        centred = self.parts - mean.detach()
        deviations = (centred * (real.mT @ self.weights @ centred)).sum(dim=(0, 1))
        return count, mean, deviations
