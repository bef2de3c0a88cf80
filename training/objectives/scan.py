"""SCAN: the hinge of VSE++ on similarities that attend from words to regions, or back."""

from typing import Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor

from training.common.distributed import process_count
from training.common.errors import RecipeError
from training.models.features import Features, ModalityFeatures
from training.models.pair_attention import pair_similarities
from training.objectives.base import LossOutput, ObjectiveContext, PairObjective, Requirement
from training.objectives.local_entries import LocalEntries
from training.objectives.similarity import Similarities, over_processes
from training.objectives.vse import HingeSettings, hinge_loss


class SCANSettings(HingeSettings):
    """Those of the hinge; `model.pair_attention` says how images and texts are compared."""

    name: Literal["scan"] = "scan"

    @model_validator(mode="after")
    def _images_and_texts(self) -> Self:
        if self.pairs != (("image", "text"),):
            raise ValueError("scan compares regions of images with words of texts: leave objective.pairs out")
        return self

    def build(self, context: ObjectiveContext) -> "SCAN":
        """The objective with these settings.

        Raises:
            RecipeError: The model does not say how images and texts are compared.
        """
        return SCAN(self, context)


class SCAN(PairObjective):
    """Stacked cross attention (Lee et al. 2018): pairs are alike as words are to the regions they look at.

    No vector stands for an image or a text, so the model is measured pair by pair and fills no index. What
    compares two images is the embedding, which learns because regions go through its head.
    """

    requires: frozenset[Requirement] = frozenset({"local", "shared_head", "pair_attention", "one_vector"})

    def __init__(self, settings: SCANSettings, context: ObjectiveContext) -> None:
        super().__init__(settings)
        self.settings = settings
        if context.pair_attention is None:
            raise RecipeError(
                "scan compares pairs as the model does: give model.pair_attention, such as {queries: words}."
            )
        self.attention = context.pair_attention

    def pair_loss(self, first: ModalityFeatures, second: ModalityFeatures, features: Features) -> LossOutput:
        """The loss of a batch, a sum over items; terms: both directions and mean similarities."""
        with torch.autocast(first.embedding.device.type, enabled=False):
            images, texts = LocalEntries.of(first), LocalEntries.of(second)
            return hinge_loss(self._pairs(images, texts, features.positive_mask), self.settings)

    def _pairs(self, images: LocalEntries, texts: LocalEntries, positive_mask: Tensor | None) -> Similarities:
        if process_count() == 1:
            return Similarities.of_square(self._similarities(images, texts), positive_mask)
        rows = self._similarities(images, texts.of_all_processes())
        columns = self._similarities(images.of_all_processes(), texts).T
        return over_processes(rows, columns, positive_mask)

    def _similarities(self, images: LocalEntries, texts: LocalEntries) -> Tensor:
        return pair_similarities(images.values, images.mask, texts.values, texts.mask, self.attention)
