"""DPC: an image and its texts are of one class, that of the image; then matching pairs lead by a margin."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from training.common.errors import RecipeError
from training.models.features import Features, ModalityFeatures
from training.objectives.base import LossOutput, ObjectiveConfig, ObjectiveContext, PairObjective, Requirement
from training.objectives.similarity import Direction, full_precision, similarities
from training.objectives.vse import hinge_costs


class DPCSettings(ObjectiveConfig):
    """The margin, and when it begins to count."""

    name: Literal["dpc"] = "dpc"
    margin: float = Field(default=1.0, gt=0, description="By how much a match has to lead.")
    instance_steps: int = Field(
        default=0, ge=0, description="Steps of the instance loss alone, before the ranking loss joins it."
    )

    def build(self, context: ObjectiveContext) -> "DPC":
        """The objective with these settings.

        Raises:
            RecipeError: There are no training items.
        """
        return DPC(self, context)


class DPC(PairObjective):
    """Instance loss and ranking loss (dual-path convolutional embedding; Zheng et al. 2020).

    One linear classifier tells from an embedding of either modality which training image it belongs to. The
    ranking loss is the hinge, a mean over all that do not match: the expectation of DPC's, which draws one.
    Items of other data are of no class, and cost the ranking loss alone. It wants as many classes as there
    are training images: at 1,024 numbers each, 0.5 GB for MS-COCO.
    """

    requires: frozenset[Requirement] = frozenset({"items", "one_vector"})
    classes: Tensor
    steps: Tensor

    def __init__(self, settings: DPCSettings, context: ObjectiveContext) -> None:
        super().__init__(settings)
        self.settings = settings
        if not context.instances:
            raise RecipeError("dpc tells training images apart, and there are none.")
        classes = range(context.instances) if context.groups is None else context.groups
        self.register_buffer("classes", torch.tensor(classes), persistent=False)
        self.register_buffer("steps", torch.tensor(0))
        self.classifier = nn.Linear(context.embedding_width, max(classes) + 1)

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
        joined = self.steps >= self.settings.instance_steps
        return LossOutput(instance + ranking * joined, {"instance": instance.detach(), **terms})

    def after_step(self) -> None:
        """Count the step."""
        self.steps += 1

    def _ranking(self, direction: Direction) -> Tensor:
        counts = direction.negatives().sum(dim=1).clamp(min=1)
        return (hinge_costs(direction, self.settings.margin).sum(dim=1) / counts).mean()

    def _instance(self, features: ModalityFeatures, classes: Tensor) -> Tensor:
        return cross_entropy(self.classifier(full_precision(features.embedding)), classes)
