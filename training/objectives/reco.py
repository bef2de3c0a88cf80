"""ReCo: matching pairs to cosine 1, others to cosine 0 or below, without a softmax or a temperature."""

from typing import Literal

from pydantic import Field
from torch import Tensor

from training.objectives.base import LossOutput, ObjectiveConfig, ObjectiveContext, SimilarityObjective
from training.objectives.similarity import Similarities

REFERENCE_BATCH = 64


class ReCoSettings(ObjectiveConfig):
    """The relaxed contrastive loss; `one_sided: false` with weight .15 is the orthogonality constraint."""

    name: Literal["reco"] = "reco"
    negative_weight: float = Field(
        default=0.6, ge=0, description="Lambda. The paper's value belongs to batches of 64."
    )
    one_sided: bool = Field(
        default=True,
        description="Cosines below 0 of pairs that do not match cost nothing; false draws them to 0 as well.",
    )
    reduction: Literal["paper", "balanced"] = Field(
        default="paper",
        description="`paper` sums. `balanced` keeps the size of the loss and the balance between matching "
        "and other pairs as they are at a batch of 64, whatever the batch.",
    )

    def build(self, context: ObjectiveContext) -> "ReCo":
        """The objective with these settings."""
        return ReCo(self)


def relaxed_contrastive(
    pairs: Similarities,
    *,
    negative_weight: float = 0.6,
    one_sided: bool = True,
    reduction: Literal["paper", "balanced"] = "paper",
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of similarities (ReCo, equation 3; not one-sided: its orthogonality constraint).

    There are B matching pairs and B(B - 1) others, so the sum leans to the others as B grows. `balanced`
    multiplies the matching pairs by 64/B and the others by 64*63 / (B(B - 1)); at B = 64 both are equal.
    Matches off the diagonal cost nothing.

    Args:
        pairs: Images are its rows, texts its columns; only the rows are used, the loss is not symmetrised.
        negative_weight: Weight of the pairs that do not match.
        one_sided: Whether similarities below 0 are free for them.
        reduction: See above.

    Returns:
        Three scalars: the loss, its part of matching pairs, its part of others before their weight.
    """
    values = pairs.rows.values
    batch = values.shape[1]
    positive = (1 - pairs.rows.matched()).square().sum() * pairs.processes
    others = values.clamp(min=0) if one_sided else values
    negative = others.masked_fill(~pairs.rows.negatives(), 0).square().sum() * pairs.processes
    if reduction == "balanced":
        positive = positive * (REFERENCE_BATCH / batch)
        negative = negative * (REFERENCE_BATCH * (REFERENCE_BATCH - 1) / max(1, batch * (batch - 1)))
    return positive + negative_weight * negative, positive, negative


class ReCo(SimilarityObjective):
    """ReCo on the global embeddings of two modalities.

    Made for small batches and for data where pairs that do not match are often alike, such as radiographs.
    """

    def __init__(self, settings: ReCoSettings) -> None:
        super().__init__(settings)
        self.settings = settings

    def of_similarities(self, pairs: Similarities) -> LossOutput:
        """The loss of a batch; terms: both parts, and the mean similarity of matching and other pairs."""
        total, positive, negative = relaxed_contrastive(
            pairs,
            negative_weight=self.settings.negative_weight,
            one_sided=self.settings.one_sided,
            reduction=self.settings.reduction,
        )
        terms = {"positive": positive.detach(), "negative": negative.detach(), **pairs.mean_terms()}
        return LossOutput(total, terms)
