"""VSE0 and VSE++: a matching pair leads pairs that do not match by a margin."""

from abc import ABC
from typing import Literal

from pydantic import Field
from torch import Tensor

from training.objectives.base import LossOutput, ObjectiveConfig, ObjectiveContext, SimilarityObjective
from training.objectives.similarity import Direction, Similarities


class HingeSettings(ObjectiveConfig, ABC):
    """VSE++'s loss by default; VSE0's with `hardest: false`."""

    margin: float = Field(default=0.2, gt=0, description="By how much a match has to lead.")
    hardest: bool = Field(
        default=True,
        description="Only the most similar item that does not match counts (VSE++); false: all (VSE0).",
    )


class VSESettings(HingeSettings):
    """VSE++ by default; VSE0 with `hardest: false`."""

    name: Literal["vse"] = "vse"

    def build(self, context: ObjectiveContext) -> "VSE":
        """The objective with these settings."""
        return VSE(self)


def hinge_costs(direction: Direction, margin: float) -> Tensor:
    """What each pair that does not match (b, B) lacks to the margin; 0 for pairs that match."""
    lead = direction.matched().unsqueeze(1) - direction.values
    return (margin - lead).clamp(min=0).masked_fill(~direction.negatives(), 0)


def directional_hinge(direction: Direction, *, margin: float = 0.2, hardest: bool = True) -> Tensor:
    """Sum over local items of what pairs that do not match lack to the margin (VSE++, equations 5 and 6).

    Matches beside the partner cost nothing.

    Returns:
        Scalar: for each item the largest cost, or with `hardest` false the sum of all.
    """
    costs = hinge_costs(direction, margin)
    return costs.max(dim=1).values.sum() if hardest else costs.sum()


def hinge_loss(pairs: Similarities, settings: HingeSettings) -> LossOutput:
    """The hinge in both directions, a sum over items; terms: either direction and mean similarities."""
    forth, back = (
        directional_hinge(direction, margin=settings.margin, hardest=settings.hardest) * pairs.processes
        for direction in (pairs.rows, pairs.columns)
    )
    terms = {"first_to_second": forth.detach(), "second_to_first": back.detach(), **pairs.mean_terms()}
    return LossOutput(forth + back, terms)


class VSE(SimilarityObjective):
    """The hinge loss on the global embeddings of two modalities, in both directions.

    VSE++ suits clean pairs and batches of a hundred or more. Items that match without being marked so are its
    hardest negatives: mark them in the positive mask, or take VSE0.
    """

    def __init__(self, settings: VSESettings) -> None:
        super().__init__(settings)
        self.settings = settings

    def of_similarities(self, pairs: Similarities) -> LossOutput:
        """The loss of a batch, a sum over items; terms: both directions and mean similarities."""
        return hinge_loss(pairs, self.settings)
