"""Labels: a linear classifier on the embedding of an image tells which labels it has."""

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from training.common.errors import RecipeError
from training.models.features import Features
from training.objectives.base import Extras, ImageObjective, LossOutput, ObjectiveData, Requirement
from training.objectives.similarity import full_precision


class Labels(ImageObjective):
    """Binary cross-entropy of each label on its own (supervised pretraining, multi-label).

    The mean over images and labels of the cross-entropy of `sigmoid(W x + b)`, with x the image embedding
    (B, D). Call it with `Features` whose `extras` have `labels` (B, L). An image without a label, or with one
    that a reader found uncertain, counts as not having it.

    Use it if images have labels and searches are about these.

    >>> from training.models.features import Features, ModalityFeatures
    >>> from training.objectives import Labels
    >>> image, labels = ModalityFeatures(torch.randn(8, 64)), torch.rand(8, 3) > 0.5
    >>> Labels(embedding_dim=64, labels=3)(Features({"image": image}, extras={"labels": labels})).shape
    torch.Size([])
    """

    requires: frozenset[Requirement] = frozenset({"one_vector"})

    def __init__(self, *, embedding_dim: int, labels: int) -> None:
        super().__init__()
        self.classifier = nn.Linear(embedding_dim, labels)

    def prepare(self, data: ObjectiveData) -> Extras:
        """Return the labels of each record."""
        return Extras(rows=data.labels())

    def compute(self, features: Features) -> LossOutput:
        """Return the loss of a batch; term: the share of answers that are right.

        Raises:
            RecipeError: The batch has no labels.
        """
        labels = features.extras.get("labels")
        if not isinstance(labels, Tensor):
            raise RecipeError("The objective learns labels, which the batch has none of.")
        embedding = features["image"].embedding
        with torch.autocast(embedding.device.type, enabled=False):
            logits = self.classifier(full_precision(embedding))
            total = binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
        right = (logits.detach() > 0) == labels
        return LossOutput(total, {"right": right.to(total.dtype).mean()})
