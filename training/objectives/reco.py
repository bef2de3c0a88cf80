"""ReCo: matching pairs to cosine 1, others to cosine 0 or below, without a softmax or a temperature."""

from typing import Literal

from pydantic import Field

from training.objectives.base import LossOutput, ObjectiveContext, SimilarityObjective
from training.objectives.similarity import Similarities
from training.objectives.squared_errors import Reduction, SquaredErrorSettings, squared_errors


class ReCoSettings(SquaredErrorSettings):
    """The relaxed contrastive loss with the paper's weight."""

    name: Literal["reco"] = "reco"
    negative_weight: float = Field(
        default=0.6, ge=0, description="Lambda. The paper's value belongs to batches of 64."
    )

    def build(self, context: ObjectiveContext) -> "ReCo":
        """The objective with these settings."""
        return ReCo(self)


def relaxed_contrastive(
    pairs: Similarities, *, negative_weight: float = 0.6, reduction: Reduction = "paper"
) -> LossOutput:
    """The loss of similarities (ReCo, equation 3): below 0 those of pairs that do not match are free."""
    excess = pairs.rows.values.clamp(min=0)
    return squared_errors(pairs, excess, negative_weight=negative_weight, reduction=reduction)


class ReCo(SimilarityObjective):
    """ReCo on the global embeddings of two modalities.

    Made for small batches and for data where pairs that do not match are often alike, such as radiographs.
    """

    def __init__(self, settings: ReCoSettings) -> None:
        super().__init__(settings)
        self.settings = settings

    def of_similarities(self, pairs: Similarities) -> LossOutput:
        """The loss of a batch; terms: both parts, and the mean similarity of matching and other pairs."""
        return relaxed_contrastive(
            pairs, negative_weight=self.settings.negative_weight, reduction=self.settings.reduction
        )
