"""BYOL: one view of an image predicts what a slow copy of the encoder says of the other."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import normalize

from training.models.features import Features
from training.objectives.base import (
    ImageObjectiveConfig,
    LossOutput,
    Objective,
    ObjectiveContext,
    Requirement,
)
from training.objectives.similarity import NORM_EPS, full_precision
from training.objectives.views import targets_of_views, two_views


class BYOLSettings(ImageObjectiveConfig):
    """The predictor's size, and how slowly the copy follows."""

    name: Literal["byol"] = "byol"
    hidden: int = Field(default=4096, gt=0, description="Width of the predictor's hidden layer.")
    momentum: float = Field(
        default=0.99, ge=0, le=1, description="How much of itself the copy keeps at a step, all the time."
    )

    def build(self, context: ObjectiveContext) -> "BYOL":
        """The objective with these settings."""
        return BYOL(self, context)


class BYOL(Objective):
    """Bootstrap your own latent (Grill et al. 2020, equation 2), of images alone and without negatives.

    The image tower's head is the projector: give it `kind: mlp` and `norm: true`. The authors raise the
    copy's momentum to 1 by the end, here it stays. The predictor's batch norm takes the statistics of each
    process's items.
    """

    requires: frozenset[Requirement] = frozenset({"views", "momentum", "one_vector"})

    def __init__(self, settings: BYOLSettings, context: ObjectiveContext) -> None:
        super().__init__()
        self.momentum = settings.momentum
        width = context.embedding_width
        self.predictor = nn.Sequential(
            nn.Linear(width, settings.hidden),
            nn.BatchNorm1d(settings.hidden),
            nn.ReLU(),
            nn.Linear(settings.hidden, width),
        )

    def forward(self, features: Features) -> LossOutput:
        """The loss of a batch, both views' together; term: the mean cosine of prediction and target.

        Raises:
            RecipeError: The batch lacks a view, or what the copy says of it.
        """
        first, second = (view.embedding for view in two_views(features))
        of_first, of_second = (target.embedding for target in targets_of_views(features))
        with torch.autocast(first.device.type, enabled=False):
            cosines = self._cosines(first, of_second) + self._cosines(second, of_first)
        return LossOutput(4 - 2 * cosines, {"similarity": cosines.detach() / 2})

    def _cosines(self, online: Tensor, target: Tensor) -> Tensor:
        """The mean cosine of predictions from one view and targets (b, D) from the other."""
        predicted = normalize(self.predictor(full_precision(online)), dim=1, eps=NORM_EPS)
        wanted = normalize(target.detach().to(predicted.dtype), dim=1, eps=NORM_EPS)
        return (predicted * wanted).sum(dim=1).mean()
