"""PixPro: where two views of an image show the same place, their regions agree."""

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import normalize

from training.common.errors import RecipeError
from training.models.features import Features, ModalityFeatures
from training.objectives.base import (
    ImageObjectiveConfig,
    LossOutput,
    Objective,
    ObjectiveContext,
    Requirement,
)
from training.objectives.local_cosines import self_cosines
from training.objectives.local_entries import LocalEntries
from training.objectives.similarity import NORM_EPS
from training.objectives.views import targets_of_views, two_views


class PixProSettings(ImageObjectiveConfig):
    """How near is the same place, how regions share, and how slowly the copy follows."""

    name: Literal["pixpro"] = "pixpro"
    reach: float = Field(
        default=0.7,
        gt=0,
        description="How far apart the centres of two regions may lie in the image, in diagonals of the "
        "larger region.",
    )
    sharpness: float = Field(
        default=2.0, ge=1, description="Power of the cosines by which regions share what they say."
    )
    momentum: float = Field(
        default=0.99, ge=0, le=1, description="How much of itself the copy keeps at a step, all the time."
    )

    def build(self, context: ObjectiveContext) -> "PixPro":
        """The objective with these settings."""
        return PixPro(self, context)


class PixPro(Objective):
    """Pixel-to-propagation consistency (Xie et al. 2021), of images alone.

    A region of one view, smoothed by the regions of the view that resemble it, predicts what a slow copy of
    the encoder says of the other view's regions near the same place. An image whose views do not meet costs
    nothing. The head of the image tower is the projector: give it `kind: mlp` and `norm: true`. The model is
    searched by the embedding, which learns because the regions go through its head. The authors raise the
    copy's momentum to 1 by the end, here it stays.
    """

    requires: frozenset[Requirement] = frozenset({"local", "shared_head", "views", "momentum"})

    def __init__(self, settings: PixProSettings, context: ObjectiveContext) -> None:
        super().__init__()
        self.settings = settings
        self.momentum = settings.momentum
        self.value = nn.Linear(context.dim, context.dim)

    def check_regions(self, count: int) -> None:
        """Make sure that so many regions are a square grid.

        Raises:
            RecipeError: They are not.
        """
        _side(count)

    def forward(self, features: Features) -> LossOutput:
        """The loss of a batch, both views' together; terms: mean cosine of what meets, and how much meets.

        Raises:
            RecipeError: The batch lacks a view, or what the copy says of it, or the regions are no square.
        """
        views, targets = two_views(features), targets_of_views(features)
        with torch.autocast(views[0].embedding.device.type, enabled=False):
            first, second = (LocalEntries.of(view).values for view in views)
            of_first, of_second = (
                LocalEntries.of(target).values.detach().to(first.dtype) for target in targets
            )
            near = self.near(*views).to(first.dtype)
            cosines = self._cosines(first, of_second, near) + self._cosines(second, of_first, near.mT)
        terms = {"similarity": cosines.detach() / 2, "overlap": near.amax(dim=2).mean()}
        return LossOutput(-cosines, terms)

    def near(self, first: ModalityFeatures, second: ModalityFeatures) -> Tensor:
        """(b, K, K) bool, True where a region of the first view shows the place of one of the second."""
        if first.local is None or first.frame is None or second.frame is None:
            raise RecipeError("The objective asks where views overlap, which the batch does not tell.")
        side = _side(first.local.shape[1])
        distances = torch.cdist(centres(first.frame, side), centres(second.frame, side))
        diagonals = torch.maximum(_diagonal(first.frame, side), _diagonal(second.frame, side))
        return distances < self.settings.reach * diagonals.view(-1, 1, 1)

    def _cosines(self, online: Tensor, targets: Tensor, near: Tensor) -> Tensor:
        """The mean over images of the mean cosine of predictions and targets (b, K, D) that are near."""
        predicted = normalize(self._propagated(online), dim=2, eps=NORM_EPS)
        cosines = predicted @ normalize(targets, dim=2, eps=NORM_EPS).mT
        return ((cosines * near).sum(dim=(1, 2)) / near.sum(dim=(1, 2)).clamp(min=1)).mean()

    def _propagated(self, regions: Tensor) -> Tensor:
        """Each region's mixture (b, K, D) of the values of those that resemble it."""
        shares = self_cosines(regions).clamp(min=0).pow(self.settings.sharpness)
        return shares @ normalize(self.value(regions), dim=2, eps=NORM_EPS)


def centres(frames: Tensor, side: int) -> Tensor:
    """Where the centres of the regions of changed images lie in the unchanged ones (b, K, 2), row by row.

    Args:
        frames: (b, 2, 3) as in `ModalityFeatures`.
        side: Regions in a row.
    """
    places = (torch.arange(side, dtype=frames.dtype, device=frames.device) + 0.5) / side
    y, x = torch.meshgrid(places, places, indexing="ij")
    points = torch.stack((x, y, torch.ones_like(x)), dim=2).flatten(0, 1)
    return points @ frames.mT


def _diagonal(frames: Tensor, side: int) -> Tensor:
    """(b,) the diagonal of a region in the unchanged image; of a square of its area, were it no square."""
    # The determinant of a 2 x 2 matrix, which needs no solver.
    (xx, xy), (yx, yy) = (row.unbind(dim=1) for row in frames[:, :, :2].unbind(dim=1))
    area = (xx * yy - xy * yx).abs()
    return (2 * area).sqrt() / side


def _side(count: int) -> int:
    side = math.isqrt(count)
    if side * side != count:
        raise RecipeError(
            f"The image tower gives {count} regions, which pixpro cannot place: they are no square."
        )
    return side
