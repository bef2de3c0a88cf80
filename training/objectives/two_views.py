"""Objectives of two views of each image, without texts: SimCLR, BYOL and PixPro."""

import math
from collections.abc import Mapping
from typing import Annotated, Final

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

from training.common.distributed import gather_rows
from training.common.errors import RecipeError
from training.models.features import Features, ModalityFeatures
from training.objectives.base import ImageObjective, LossOutput, Requirement
from training.objectives.local import LocalEntries, self_cosines
from training.objectives.similarity import (
    NORM_EPS,
    Direction,
    full_precision,
    similarities,
    similarity_matrix,
)

Momentum = Annotated[
    float, Field(ge=0, le=1, description="Share of itself that the copy keeps at each step.")
]
_SHARED_HEAD: Final = "local features that train the embedding: set model.share_local_head to true"


def two_views(features: Features) -> tuple[ModalityFeatures, ModalityFeatures]:
    """The features of both views of the images.

    Raises:
        RecipeError: There are no second views.
    """
    if "view" not in features.modalities:
        raise RecipeError("The objective compares two views of an image: give augmentation.")
    return features["image"], features["view"]


def targets_of_views(features: Features) -> tuple[ModalityFeatures, ModalityFeatures]:
    """What the copy says of both views of the images.

    Raises:
        RecipeError: The batch has nothing of it.
    """
    if "momentum" not in features.modalities or "momentum_view" not in features.modalities:
        raise RecipeError("The objective learns from a copy of the encoder, which the batch has nothing of.")
    return features["momentum"], features["momentum_view"]


class SimCLR(ImageObjective):
    """NT-Xent over two views of each image (Chen et al. 2020, equation 1), without texts.

    The mean over all 2B views of `-log softmax(s / t)` at the other view of the same image, with s the
    cosines to all other views and t the temperature. Call it with `Features` that have `image` and `view`
    (B, D).

    Use it if there are only images and batches can be large. The image tower's head is the projection head:
    give it `kind: mlp`. The temperature is the one that the authors found best for unit vectors.

    >>> from training.models.features import Features, ModalityFeatures
    >>> from training.objectives import SimCLR
    >>> views = {name: ModalityFeatures(torch.randn(8, 64)) for name in ("image", "view")}
    >>> SimCLR(temperature=0.1)(Features(views)).shape
    torch.Size([])
    """

    requires: frozenset[Requirement] = frozenset({"views"})
    compares_items: bool = True

    def __init__(self, temperature: Annotated[float, Field(gt=0)] = 0.1) -> None:
        super().__init__()
        self.temperature = temperature

    def compute(self, features: Features) -> LossOutput:
        """Return the loss of a batch, a mean over all views; term: the mean cosine of two views of an image.

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


class BYOL(ImageObjective):
    """Bootstrap your own latent (Grill et al. 2020, equation 2), of images alone and without negatives.

    `4 - 2 (cos(q(x), y') + cos(q(x'), y))`, a mean over images, with x and x' the embeddings (B, D) of two
    views, y and y' those of a slow copy of the encoder, and q a predictor. Call it with `Features` that have
    `image`, `view`, `momentum` and `momentum_view`.

    Use it if there are only images and batches are small. The image tower's head is the projector: give it
    `kind: mlp` and `norm: true`. The authors raise the copy's momentum to 1 by the end; here it is constant.
    The predictor's batch norm takes the statistics of each process's items.

    >>> from training.models.features import Features, ModalityFeatures
    >>> from training.objectives import BYOL
    >>> names = ("image", "view", "momentum", "momentum_view")
    >>> views = {name: ModalityFeatures(torch.randn(8, 64)) for name in names}
    >>> BYOL(embedding_dim=64, hidden=256)(Features(views)).shape
    torch.Size([])
    """

    requires: frozenset[Requirement] = frozenset({"views", "momentum", "one_vector"})

    def __init__(
        self,
        *,
        embedding_dim: int,
        hidden: Annotated[int, Field(gt=0, description="Width of the predictor's hidden layer.")] = 4096,
        momentum: Momentum = 0.99,
    ) -> None:
        super().__init__()
        self.momentum = momentum
        self.predictor = nn.Sequential(
            nn.Linear(embedding_dim, hidden),
            nn.BatchNorm1d(hidden),
            nn.ReLU(),
            nn.Linear(hidden, embedding_dim),
        )

    def compute(self, features: Features) -> LossOutput:
        """Return the loss of a batch, both views' together; term: the mean cosine of prediction and target.

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
        expected = normalize(target.detach().to(predicted.dtype), dim=1, eps=NORM_EPS)
        return (predicted * expected).sum(dim=1).mean()


class PixPro(ImageObjective):
    """Pixel-to-propagation consistency (Xie et al. 2021), of images alone.

    Minus the mean cosines of regions (B, K, D) of one view, smoothed by the regions of the view that resemble
    them, with what a slow copy of the encoder says of the other view's regions near the same position. An
    image whose views don't meet costs nothing. Call it with `Features` that have `image`, `view`, `momentum`
    and `momentum_view`, each with `local`, the views with `frame`.

    Use it to pretrain encoders for segmentation or detection from images alone. The image tower's head is the
    projector: give it `kind: mlp` and `norm: true`. The model is searched by the embedding, which learns
    because the regions go through its head. The authors raise the copy's momentum to 1 by the end; here it is
    constant.

    >>> from training.models.features import Features, ModalityFeatures
    >>> from training.objectives import PixPro
    >>> whole = torch.eye(2, 3).repeat(8, 1, 1)
    >>> names = ("image", "view", "momentum", "momentum_view")
    >>> views = {
    ...     name: ModalityFeatures(torch.randn(8, 64), local=torch.randn(8, 49, 64), frame=whole)
    ...     for name in names
    ... }
    >>> PixPro(dim=64)(Features(views)).shape
    torch.Size([])
    """

    requires: frozenset[Requirement] = frozenset({"local", "views", "momentum"})
    needs: Mapping[str, str] = {"model.share_local_head": _SHARED_HEAD}

    def __init__(
        self,
        *,
        dim: int,
        reach: Annotated[
            float,
            Field(
                gt=0,
                description="Largest distance of the centres of two regions that show the same spot, in "
                "diagonals of the larger region.",
            ),
        ] = 0.7,
        sharpness: Annotated[
            float, Field(ge=1, description="Power of the cosines by which regions share what they say.")
        ] = 2.0,
        momentum: Momentum = 0.99,
    ) -> None:
        super().__init__()
        self.reach, self.sharpness, self.momentum = reach, sharpness, momentum
        self.value = nn.Linear(dim, dim)

    def check_regions(self, count: int) -> None:
        """Make sure that so many regions are a square grid.

        Raises:
            RecipeError: They are not.
        """
        _side(count)

    def compute(self, features: Features) -> LossOutput:
        """Return the loss of a batch, both views' together; terms: mean cosine and share of what meets.

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
        """(b, K, K) bool, True where regions of the first and the second view show the same spot."""
        if first.local is None or first.frame is None or second.frame is None:
            raise RecipeError("The objective asks where views overlap, which the batch does not tell.")
        side = _side(first.local.shape[1])
        distances = torch.cdist(centres(first.frame, side), centres(second.frame, side))
        diagonals = torch.maximum(_diagonal(first.frame, side), _diagonal(second.frame, side))
        return distances < self.reach * diagonals.view(-1, 1, 1)

    def _cosines(self, online: Tensor, targets: Tensor, near: Tensor) -> Tensor:
        """The mean over images of the mean cosine of predictions and targets (b, K, D) that are near."""
        predicted = normalize(self._propagated(online), dim=2, eps=NORM_EPS)
        cosines = predicted @ normalize(targets, dim=2, eps=NORM_EPS).mT
        return ((cosines * near).sum(dim=(1, 2)) / near.sum(dim=(1, 2)).clamp(min=1)).mean()

    def _propagated(self, regions: Tensor) -> Tensor:
        """Each region's mixture (b, K, D) of the values of those that resemble it."""
        shares = self_cosines(regions).clamp(min=0).pow(self.sharpness)
        return shares @ normalize(self.value(regions), dim=2, eps=NORM_EPS)


def centres(frames: Tensor, side: int) -> Tensor:
    """Positions of the centres of regions of changed images in the unchanged ones (b, K, 2), row by row.

    Args:
        frames: (b, 2, 3) as in `ModalityFeatures`.
        side: Regions in a row.
    """
    centers = (torch.arange(side, dtype=frames.dtype, device=frames.device) + 0.5) / side
    y, x = torch.meshgrid(centers, centers, indexing="ij")
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
            f"The image tower gives {count} regions, whose positions pixpro can't tell: they form no square."
        )
    return side
