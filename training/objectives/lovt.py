"""LoVT: global contrast, and contrast of regions and sentences within each sample."""

import math
from typing import Literal, Self

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor

from training.common.errors import RecipeError
from training.models.features import Features, ModalityFeatures
from training.objectives.base import LossOutput, ObjectiveConfig, ObjectiveContext, PairObjective, Requirement
from training.objectives.cross_attention import CrossAttention
from training.objectives.infonce import info_nce
from training.objectives.local_alignment import grid_positives, local_contrastive
from training.objectives.local_entries import LocalEntries
from training.objectives.mixtures import Mixtures
from training.objectives.similarity import similarities


class LoVTSettings(ObjectiveConfig):
    """LoVT with the weights and temperatures of its authors."""

    name: Literal["lovt"] = "lovt"
    image_weight: float = Field(
        default=0.75, ge=0, le=1, description="Weight of image-to-text in the global loss."
    )
    temperature: float = Field(default=0.1, gt=0, description="Of the global loss.")
    global_weight: float = Field(default=1.0, ge=0, description="Gamma.")
    region_weight: float = Field(
        default=0.375, ge=0, description="Of each direction of the loss over regions (mu / 2)."
    )
    sentence_weight: float = Field(
        default=0.375, ge=0, description="Of each direction of the loss over sentences (nu / 2)."
    )
    local_temperature: float = Field(default=0.3, gt=0, description="Of both local losses.")
    reach: float = Field(
        default=0.5,
        ge=0,
        description="How far from a region its positives lie, in parts of the image's diagonal.",
    )
    grid: tuple[PositiveInt, PositiveInt] | None = Field(
        default=None, description="Rows and columns of regions; without it the grid is a square."
    )

    @model_validator(mode="after")
    def _first_is_the_image(self) -> Self:
        if any(first != "image" for first, _ in self.pairs):
            raise ValueError("every pair of lovt starts with image: its local entries lie on a grid")
        return self

    def build(self, context: ObjectiveContext) -> "LoVT":
        """The objective with these settings."""
        return LoVT(self, context)


class LoVT(PairObjective):
    """LoVT on global embeddings, regions and sentences (Müller et al. 2022, equations 5-14).

    For pretraining that serves localised tasks. It needs reports of several sentences to gain from its loss
    over sentences; a report of one sentence adds a constant to it.
    """

    requires: frozenset[Requirement] = frozenset({"local"})

    def __init__(self, settings: LoVTSettings, context: ObjectiveContext) -> None:
        super().__init__(settings)
        self.settings = settings
        self.attention = CrossAttention(context.dim)
        self.positives: Tensor | None
        self.register_buffer("positives", None, persistent=False)

    def pair_loss(self, first: ModalityFeatures, second: ModalityFeatures, features: Features) -> LossOutput:
        """The loss of one batch; terms: the global loss, and the local losses of regions and sentences."""
        settings = self.settings
        with torch.autocast(first.embedding.device.type, enabled=False):
            pairs = similarities(first.embedding, second.embedding, features.positive_mask)
            whole, _, _ = info_nce(pairs, 1 / settings.temperature, image_weight=settings.image_weight)
            regions, sentences = LocalEntries.of(first), LocalEntries.of(second)
            by_regions, by_sentences = self.attention(regions, sentences)
            region = self._local_loss(regions, by_regions, self._positives(regions.values))
            sentence = self._local_loss(sentences, by_sentences)
            total = (
                settings.global_weight * whole
                + settings.region_weight * region
                + settings.sentence_weight * sentence
            )
        terms = {"global": whole, "region": region, "sentence": sentence}
        return LossOutput(total, {name: term.detach() for name, term in terms.items()})

    def check_regions(self, count: int) -> None:
        """Make sure that so many regions are a grid.

        Raises:
            RecipeError: They are not.
        """
        self._grid(count)

    def _local_loss(self, own: LocalEntries, found: Mixtures, positives: Tensor | None = None) -> Tensor:
        there, back = local_contrastive(
            found.cosines(own.values),
            own.weights,
            own.mask,
            temperature=self.settings.local_temperature,
            positives=positives,
        )
        return there + back

    def _positives(self, regions: Tensor) -> Tensor:
        """Positives (K, K) of the regions; made once for each size of the grid."""
        count = regions.shape[1]
        if self.positives is None or len(self.positives) != count:
            height, width = self._grid(count)
            positives = grid_positives(height, width, reach=self.settings.reach)
            self.positives = positives.to(regions.device, non_blocking=True)
        return self.positives.to(regions.dtype)

    def _grid(self, count: int) -> tuple[int, int]:
        """Rows and columns of so many regions."""
        height, width = self.settings.grid or (math.isqrt(count), math.isqrt(count))
        if height * width != count:
            raise RecipeError(
                f"The image tower gives {count} regions, which are no grid of {height} x {width}: "
                "set objective.grid to its rows and columns."
            )
        return height, width
