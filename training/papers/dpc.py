"""DPC: an image and its texts are of one class, that of the image; then matching pairs lead by a margin."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from training.models.features import Features, ModalityFeatures
from training.objectives.base import LossOutput, PairObjective, Requirement
from training.objectives.similarity import Direction, full_precision, similarities
from training.objectives.vse import Margin, hinge_costs


class DPC(PairObjective):
    """Instance loss and ranking loss (dual-path convolutional embedding; Zheng et al. 2020).

    `CE(W image, class) + CE(W text, class) + hinge`, means over items: one linear classifier W tells from an
    embedding (B, D) of either modality which training image it belongs to. The hinge is a mean over all that
    don't match: the expectation of DPC's, which draws one. It has as many classes as there are training
    images: at 1,024 numbers each, 0.5 GB for MS-COCO. Call it with `Features` that have `items` (B,); without
    them, as for other data, it is the hinge alone.

    Use it if batches are small, with a hundred thousand images at most, best after `instance_steps` of the
    instance loss alone.

    >>> from training.models.features import Features, ModalityFeatures
    >>> from training.papers.dpc import DPC
    >>> modalities = {name: ModalityFeatures(torch.randn(8, 64)) for name in ("image", "text")}
    >>> DPC(embedding_dim=64, instances=100)(Features(modalities, items=torch.arange(8))).shape
    torch.Size([])
    """

    requires: frozenset[Requirement] = frozenset({"one_vector"})
    classes: Tensor
    steps: Tensor

    def __init__(
        self,
        *,
        embedding_dim: int,
        instances: int,
        groups: tuple[int, ...] | None = None,
        margin: Margin = 1.0,
        instance_steps: Annotated[
            int,
            Field(ge=0, description="Steps of the instance loss alone, before the ranking loss joins it."),
        ] = 0,
    ) -> None:
        super().__init__()
        self.margin, self.instance_steps = margin, instance_steps
        classes = range(instances) if groups is None else groups
        self.register_buffer("classes", torch.tensor(classes), persistent=False)
        self.register_buffer("steps", torch.tensor(0))
        self.classifier = nn.Linear(embedding_dim, max(classes) + 1)

    def pair_loss(self, first: ModalityFeatures, second: ModalityFeatures, features: Features) -> LossOutput:
        """The loss of a batch, a mean over items; terms: the ranking loss, and the instance loss if any."""
        with torch.autocast(first.embedding.device.type, enabled=False):
            pairs = similarities(first.embedding, second.embedding, features.positive_mask)
            ranking = self._ranking(pairs.rows) + self._ranking(pairs.columns)
            terms = {"ranking": ranking.detach(), **pairs.mean_terms()}
            if features.items is None:
                return LossOutput(ranking, terms)
            classes = self.classes[features.items]
            instance = self._instance(first, classes) + self._instance(second, classes)
        joined = self.steps >= self.instance_steps
        return LossOutput(instance + ranking * joined, {"instance": instance.detach(), **terms})

    def after_step(self) -> None:
        """Count the step."""
        self.steps += 1

    def _ranking(self, direction: Direction) -> Tensor:
        counts = direction.negatives().sum(dim=1).clamp(min=1)
        return (hinge_costs(direction, self.margin).sum(dim=1) / counts).mean()

    def _instance(self, features: ModalityFeatures, classes: Tensor) -> Tensor:
        return cross_entropy(self.classifier(full_precision(features.embedding)), classes)
