"""Objectives that add a term of their own to another objective, their base."""

from abc import ABC
from collections.abc import Callable
from typing import Self

from pydantic import Field, model_validator

from training.common.errors import RecipeError
from training.models.config import Modality
from training.models.features import Features, PretrainedLogits
from training.objectives.base import LossOutput, Objective, ObjectiveConfig, ObjectiveContext
from training.objectives.infonce import InfoNCESettings
from training.objectives.registry import ObjectiveSettings


class ComposedConfig(ObjectiveConfig, ABC):
    """Settings of an objective on top of another, InfoNCE by default."""

    base: ObjectiveSettings = Field(
        default=InfoNCESettings(), description="What the term is added to; it takes the pairs from here."
    )

    @model_validator(mode="after")
    def _pairs_are_given_once(self) -> Self:
        if self.base.pairs not in (self.pairs, ObjectiveConfig.model_fields["pairs"].default):
            raise ValueError("the base takes the pairs of the whole: set objective.pairs, not its base's")
        # Pairs that the base by itself refuses are wrong here as well.
        type(self.base).model_validate({**self.base.model_dump(), "pairs": self.pairs})
        return self

    def with_temperature(self, read: Callable[[], PretrainedLogits | None]) -> Self:
        """Settings with the towers' temperature as that of the base."""
        return self.model_copy(update={"base": self.base.with_temperature(read)})


class ComposedObjective(Objective, ABC):
    """An objective with a base: needs, loss, terms and updates of the base are among its own."""

    def __init__(self, settings: ComposedConfig, context: ObjectiveContext) -> None:
        super().__init__()
        self.base = settings.base.model_copy(update={"pairs": settings.pairs}).build(context)
        self.requires = type(self).requires | self.base.requires
        self.retrievals = self.base.retrievals

    def base_loss(self, features: Features) -> LossOutput:
        """The loss of the base alone."""
        output: LossOutput = self.base(features)
        return output

    def check_regions(self, count: int) -> None:
        """Make sure that the base can take images of so many local features."""
        self.base.check_regions(count)

    def after_step(self) -> None:
        """Update what the base keeps."""
        self.base.after_step()


def check_one_vector(features: Features, modality: Modality, objective: str) -> None:
    """Make sure that a modality's embeddings are single vectors.

    Raises:
        RecipeError: They are k-blades.
    """
    if features[modality].embedding.ndim != 2:
        raise RecipeError(f"{objective} reads embeddings of one vector each: set model.blades to 1.")
