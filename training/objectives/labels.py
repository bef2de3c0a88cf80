"""Labels: a linear classifier on the embedding of an image tells which labels it has."""

from typing import Literal

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from training.common.errors import RecipeError
from training.models.features import Features
from training.objectives.base import (
    ImageObjectiveConfig,
    LossOutput,
    Objective,
    ObjectiveContext,
    Requirement,
)
from training.objectives.similarity import full_precision


class LabelsSettings(ImageObjectiveConfig):
    """Nothing to set: the labels are all that the train split has."""

    name: Literal["labels"] = "labels"

    def build(self, context: ObjectiveContext) -> "Labels":
        """The objective with these settings.

        Raises:
            RecipeError: There are no labels.
        """
        return Labels(context)


class Labels(Objective):
    """Binary cross-entropy of each label for itself (supervised pretraining, multi-label).

    An image without a label counts as one that has it not, and so do labels that a reader found uncertain.
    """

    requires: frozenset[Requirement] = frozenset({"labels", "one_vector"})

    def __init__(self, context: ObjectiveContext) -> None:
        super().__init__()
        if not context.labels:
            raise RecipeError("The objective learns labels, and no training image has any: add `labels`.")
        self.classifier = nn.Linear(context.embedding_width, context.labels)

    def forward(self, features: Features) -> LossOutput:
        """The loss of a batch, a mean over images and labels; term: the share of answers that are right.

        Raises:
            RecipeError: The batch has no labels.
        """
        if features.labels is None:
            raise RecipeError("The objective learns labels, which the batch has none of.")
        embedding = features["image"].embedding
        with torch.autocast(embedding.device.type, enabled=False):
            logits = self.classifier(full_precision(embedding))
            total = binary_cross_entropy_with_logits(logits, features.labels.to(logits.dtype))
        right = (logits.detach() > 0) == features.labels
        return LossOutput(total, {"right": right.to(total.dtype).mean()})
