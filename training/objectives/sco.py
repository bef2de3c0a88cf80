"""SCO: concepts that an image shows, put into order by writing its text, meet the text's embedding."""

from dataclasses import replace
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch.nn.functional import binary_cross_entropy_with_logits

from training.common.errors import RecipeError
from training.models.features import Features, ModalityFeatures
from training.objectives.base import LossOutput, ObjectiveContext, PairObjective, Requirement
from training.objectives.caption_lstm import CaptionLSTMSettings
from training.objectives.similarity import full_precision, similarities
from training.objectives.vse import HingeSettings, hinge_loss


class SCOSettings(HingeSettings):
    """The hinge's, and what concepts and order weigh beside it."""

    name: Literal["sco"] = "sco"
    width: int = Field(default=512, gt=0, description="Of the words and states that write texts.")
    concept_weight: float = Field(default=1.0, ge=0)
    order_weight: float = Field(default=1.0, ge=0)

    @model_validator(mode="after")
    def _images_and_texts(self) -> Self:
        if self.pairs != (("image", "text"),):
            raise ValueError("sco matches images with texts: leave objective.pairs out")
        return self

    def build(self, context: ObjectiveContext) -> "SCO":
        """The objective with these settings.

        Raises:
            RecipeError: There are no captions.
        """
        return SCO(self, context)


class SCO(PairObjective):
    """Semantic concepts and order (Huang et al. 2018): matching, concepts and writing, each a mean.

    The embedding of an image fuses its concepts with its pooled feature (`model.concepts`). Concepts learn by
    the words of the image's texts; their order, by an LSTM that writes the text from the embedding alone.
    """

    requires: frozenset[Requirement] = frozenset({"concepts", "labels", "captions", "one_vector"})

    def __init__(self, settings: SCOSettings, context: ObjectiveContext) -> None:
        super().__init__(settings)
        self.settings = settings
        self.writer = CaptionLSTMSettings(width=settings.width).build(
            replace(context, dim=context.embedding_width)
        )

    def pair_loss(self, first: ModalityFeatures, second: ModalityFeatures, features: Features) -> LossOutput:
        """The loss of a batch; terms: matching, concepts and order, and those of the first and the last.

        Raises:
            RecipeError: The batch has no concepts, no labels or no captions.
        """
        if first.concepts is None or features.labels is None:
            raise RecipeError("sco predicts concepts of images: give model.concepts, such as 256.")
        with torch.autocast(first.embedding.device.type, enabled=False):
            pairs = similarities(first.embedding, second.embedding, features.positive_mask)
            hinge = hinge_loss(pairs, self.settings)
            matching = hinge.total / pairs.rows.values.shape[1]
            logits = full_precision(first.concepts)
            concepts = binary_cross_entropy_with_logits(logits, features.labels.to(logits.dtype))
        # One region, so that all the writer can look at is the embedding.
        image = ModalityFeatures(first.embedding, local=first.embedding.unsqueeze(1))
        order = self.writer(replace(features, modalities={"image": image}))
        total = matching + self.settings.concept_weight * concepts + self.settings.order_weight * order.total
        terms = {"matching": matching, "concepts": concepts, "order": order.total}
        detached = {name: term.detach() for name, term in terms.items()}
        return LossOutput(total, {**detached, **order.terms, **pairs.mean_terms()})
