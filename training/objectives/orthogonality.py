"""The orthogonality constraint: matching pairs to cosine 1, all others to cosine 0."""

from typing import Literal

from pydantic import Field

from training.objectives.base import LossOutput, ObjectiveContext, SimilarityObjective
from training.objectives.similarity import Similarities
from training.objectives.squared_errors import Reduction, SquaredErrorSettings, squared_errors


class OrthogonalitySettings(SquaredErrorSettings):
    """The orthogonality constraint with the weight that the paper found best."""

    name: Literal["orthogonality"] = "orthogonality"
    negative_weight: float = Field(
        default=0.15, ge=0, description="Lambda. The paper's value belongs to batches of 64."
    )

    def build(self, context: ObjectiveContext) -> "Orthogonality":
        """The objective with these settings."""
        return Orthogonality(self)


def orthogonality_constraint(
    pairs: Similarities, *, negative_weight: float = 0.15, reduction: Reduction = "paper"
) -> LossOutput:
    """The loss of similarities (ReCo, equation 6): of pairs that do not match both sides of 0 cost."""
    return squared_errors(pairs, pairs.rows.values, negative_weight=negative_weight, reduction=reduction)


class Orthogonality(SimilarityObjective):
    """The orthogonality constraint on the global embeddings of two modalities.

    What ReCo relaxes, and its ablation: near ReCo on radiographs, far behind it on photographs.
    """

    def __init__(self, settings: OrthogonalitySettings) -> None:
        super().__init__(settings)
        self.settings = settings

    def of_similarities(self, pairs: Similarities) -> LossOutput:
        """The loss of a batch; terms: both parts, and the mean similarity of matching and other pairs."""
        return orthogonality_constraint(
            pairs, negative_weight=self.settings.negative_weight, reduction=self.settings.reduction
        )
