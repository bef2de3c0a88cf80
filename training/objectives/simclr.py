"""SimCLR: two views of an image find each other among all views of a batch."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from training.common.distributed import gather_rows
from training.models.features import Features
from training.objectives.base import (
    ImageObjectiveConfig,
    LossOutput,
    Objective,
    ObjectiveContext,
    Requirement,
)
from training.objectives.similarity import Direction, full_precision, similarities, similarity_matrix
from training.objectives.views import two_views


class SimCLRSettings(ImageObjectiveConfig):
    """The temperature is the one that its authors found best for unit vectors."""

    name: Literal["simclr"] = "simclr"
    temperature: float = Field(default=0.1, gt=0)

    @property
    def compares_items(self) -> bool:
        """Views of an image are told from those of others."""
        return True

    def build(self, context: ObjectiveContext) -> "SimCLR":
        """The objective with these settings."""
        return SimCLR(self)


class SimCLR(Objective):
    """NT-Xent over two views of each image (Chen et al. 2020, equation 1), of images alone.

    The image tower's head is the projection head: give it `kind: mlp`. Batches should be large.
    """

    requires: frozenset[Requirement] = frozenset({"views"})

    def __init__(self, settings: SimCLRSettings) -> None:
        super().__init__()
        self.temperature = settings.temperature

    def forward(self, features: Features) -> LossOutput:
        """The loss of a batch, a mean over all views; term: the mean cosine of two views of an image.

        Raises:
            RecipeError: The batch has no second views.
        """
        first, second = (view.embedding for view in two_views(features))
        with torch.autocast(first.device.type, enabled=False):
            first, second = full_precision(first), full_precision(second)
            across = similarities(first, second)
            total = (self._loss(across.rows, first) + self._loss(across.columns, second)) / 2
        return LossOutput(total, {"view_similarity": across.rows.matched().detach().mean()})

    def _loss(self, others: Direction, views: Tensor) -> Tensor:
        """Cross-entropy of the partners of local views, (b, D) or (b, k, D), among all; none meets itself."""
        own = others.own.unsqueeze(1)
        same = similarity_matrix(views, gather_rows(views)).scatter(1, own, -torch.inf)
        return cross_entropy(torch.cat((others.values, same), dim=1) / self.temperature, others.own)
