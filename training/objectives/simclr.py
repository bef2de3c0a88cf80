"""SimCLR: two views of an image find each other among all views of a batch."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from training.distributed import gather_rows, process_rank
from training.models.features import Features
from training.objectives.base import (
    ImageObjectiveConfig,
    LossOutput,
    Objective,
    ObjectiveContext,
    Requirement,
)
from training.objectives.similarity import cosine_matrix, full_precision
from training.objectives.views import two_views


class SimCLRSettings(ImageObjectiveConfig):
    """The temperature is the one that its authors found best for unit vectors."""

    name: Literal["simclr"] = "simclr"
    temperature: float = Field(default=0.1, gt=0)

    def build(self, context: ObjectiveContext) -> "SimCLR":
        """The objective with these settings."""
        return SimCLR(self)


class SimCLR(Objective):
    """NT-Xent over two views of each image (Chen et al. 2020, equation 1), of images alone.

    The image tower's head is the projection head: give it `kind: mlp`. Batches should be large.
    """

    requires: frozenset[Requirement] = frozenset({"views", "one_vector"})

    def __init__(self, settings: SimCLRSettings) -> None:
        super().__init__()
        self.temperature = settings.temperature

    def forward(self, features: Features) -> LossOutput:
        """The loss of a batch, a mean over all views; term: the mean cosine of two views of an image.

        Raises:
            RecipeError: The batch has no second views.
        """
        first, second = two_views(features)
        with torch.autocast(first.device.type, enabled=False):
            all_first, all_second = gather_rows(full_precision(first)), gather_rows(full_precision(second))
            across = cosine_matrix(first, all_second)
            back = cosine_matrix(second, all_first)
            own = torch.arange(len(first), device=first.device) + process_rank() * len(first)
            losses = (
                self._loss(across, cosine_matrix(first, all_first), own)
                + self._loss(back, cosine_matrix(second, all_second), own)
            ) / 2
        similarity = across.detach().gather(1, own.unsqueeze(1)).mean()
        return LossOutput(losses, {"view_similarity": similarity})

    def _loss(self, others: Tensor, same: Tensor, own: Tensor) -> Tensor:
        """Cross-entropy of local views' partners in `others` (b, B) among both; no view meets itself."""
        same = same.scatter(1, own.unsqueeze(1), -torch.inf)
        return cross_entropy(torch.cat((others, same), dim=1) / self.temperature, own)
