"""ReCo and the orthogonality constraint: matching pairs to cosine 1, others to 0, without a softmax."""

from typing import Annotated, Final, Literal

from pydantic import Field
from torch import Tensor

from training.objectives.base import LossOutput, SimilarityObjective
from training.objectives.similarity import Similarities

REFERENCE_BATCH: Final = 64

Reduction = Annotated[
    Literal["paper", "balanced"],
    Field(
        description="`paper` sums. `balanced` keeps the size of the loss and the balance between matching "
        "and other pairs as they are at a batch of 64, whatever the batch."
    ),
]
NegativeWeight = Annotated[
    float, Field(ge=0, description="Lambda. The paper's value belongs to batches of 64.")
]


def squared_errors(
    pairs: Similarities,
    excess: Tensor,
    *,
    negative_weight: float,
    negative_power: float = 2.0,
    reduction: Literal["paper", "balanced"] = "paper",
) -> LossOutput:
    """Squared errors of matching pairs, whose target is 1, plus a power of the excess of all others.

    There are B matching pairs and B(B - 1) others, so the sum leans to the others as B grows. `balanced`
    multiplies the matching pairs by 64/B and the others by 64*63 / (B(B - 1)); at B = 64 both are equal.
    Matches in addition to the partner cost nothing.

    Args:
        pairs: Only the rows are used: the loss isn't symmetrized.
        excess: (b, B), what counts of the rows' similarities where items don't match.
        negative_weight: Weight of the pairs that don't match.
        negative_power: Power of their excess.
        reduction: See above.

    Returns:
        The loss; terms: both parts before the weight, and the mean similarity of matching and other pairs.
    """
    batch = excess.shape[1]
    positive = (1 - pairs.rows.matched()).square().sum() * pairs.processes
    others = excess.masked_fill(~pairs.rows.negatives(), 0)
    negative = others.pow(negative_power).sum() * pairs.processes
    if reduction == "balanced":
        positive = positive * (REFERENCE_BATCH / batch)
        negative = negative * (REFERENCE_BATCH * (REFERENCE_BATCH - 1) / max(1, batch * (batch - 1)))
    terms = {"positive": positive.detach(), "negative": negative.detach(), **pairs.mean_terms()}
    return LossOutput(positive + negative_weight * negative, terms)


class ReCo(SimilarityObjective):
    """The relaxed contrastive loss on the embeddings of two modalities (ReCo, equation 3).

    `sum_i (1 - s_ii)^2 + w sum_(i != j) max(0, s_ij - c)^p`, with s the cosines (B, B), w `negative_weight`,
    p `negative_power` and c `threshold`; the paper has p = 2 and c = 0. Pairs that don't match are free below
    the threshold.

    Use it with small batches, or where pairs that don't match are often alike, as radiographs are. A fourth
    power with a weight of 1.2 to 2.4 leaves slightly similar pairs alone: of the losses compared on frozen
    towers it had the best precision at one threshold for all queries.

    >>> from training.objectives import ReCo
    >>> ReCo(negative_weight=0.6)(torch.randn(8, 64), torch.randn(8, 64)).shape
    torch.Size([])
    """

    def __init__(
        self,
        negative_weight: NegativeWeight = 0.6,
        *,
        reduction: Reduction = "paper",
        negative_power: Annotated[
            float, Field(ge=1, description="Power of what pairs that don't match exceed the threshold by.")
        ] = 2.0,
        threshold: Annotated[
            float, Field(ge=-1, lt=1, description="Cosine up to which pairs that don't match cost nothing.")
        ] = 0.0,
    ) -> None:
        super().__init__()
        self.negative_weight, self.reduction = negative_weight, reduction
        self.negative_power, self.threshold = negative_power, threshold

    def of_similarities(self, pairs: Similarities) -> LossOutput:
        """Return the loss of a batch; terms: both parts, and the mean similarity of either kind of pair."""
        return squared_errors(
            pairs,
            (pairs.rows.values - self.threshold).clamp(min=0),
            negative_weight=self.negative_weight,
            negative_power=self.negative_power,
            reduction=self.reduction,
        )


class Orthogonality(SimilarityObjective):
    """The orthogonality constraint on the embeddings of two modalities (ReCo, equation 6).

    `sum_i (1 - s_ii)^2 + w sum_(i != j) s_ij^2`: pairs that don't match are pulled to cosine 0 from both
    sides.

    What ReCo relaxes, and its ablation: near ReCo on radiographs, far behind it on photographs.

    >>> from training.objectives import Orthogonality
    >>> Orthogonality(negative_weight=0.15)(torch.randn(8, 64), torch.randn(8, 64)).shape
    torch.Size([])
    """

    def __init__(self, negative_weight: NegativeWeight = 0.15, *, reduction: Reduction = "paper") -> None:
        super().__init__()
        self.negative_weight, self.reduction = negative_weight, reduction

    def of_similarities(self, pairs: Similarities) -> LossOutput:
        """Return the loss of a batch; terms: both parts, and the mean similarity of either kind of pair."""
        return squared_errors(
            pairs, pairs.rows.values, negative_weight=self.negative_weight, reduction=self.reduction
        )
