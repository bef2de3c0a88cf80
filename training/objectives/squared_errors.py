"""What ReCo and the orthogonality constraint share: squared errors of pairs that match and of others."""

from typing import Literal

from pydantic import Field
from torch import Tensor

from training.objectives.base import LossOutput, ObjectiveConfig
from training.objectives.similarity import Similarities

REFERENCE_BATCH = 64

Reduction = Literal["paper", "balanced"]


class SquaredErrorSettings(ObjectiveConfig):
    """How the errors of a batch become one number."""

    reduction: Reduction = Field(
        default="paper",
        description="`paper` sums. `balanced` keeps the size of the loss and the balance between matching "
        "and other pairs as they are at a batch of 64, whatever the batch.",
    )


def squared_errors(
    pairs: Similarities, excess: Tensor, *, negative_weight: float, reduction: Reduction = "paper"
) -> LossOutput:
    """Squared errors of matching pairs, which should have similarity 1, and of others, whose excess counts.

    There are B matching pairs and B(B - 1) others, so the sum leans to the others as B grows. `balanced`
    multiplies the matching pairs by 64/B and the others by 64*63 / (B(B - 1)); at B = 64 both are equal.
    Matches beside the partner cost nothing.

    Args:
        pairs: Only the rows are used: the loss is not symmetrised.
        excess: (b, B), what counts of the rows' similarities where items do not match.
        negative_weight: Weight of the pairs that do not match.
        reduction: See above.

    Returns:
        The loss; terms: both parts before the weight, and the mean similarity of matching and other pairs.
    """
    batch = excess.shape[1]
    positive = (1 - pairs.rows.matched()).square().sum() * pairs.processes
    negative = excess.masked_fill(~pairs.rows.negatives(), 0).square().sum() * pairs.processes
    if reduction == "balanced":
        positive = positive * (REFERENCE_BATCH / batch)
        negative = negative * (REFERENCE_BATCH * (REFERENCE_BATCH - 1) / max(1, batch * (batch - 1)))
    terms = {"positive": positive.detach(), "negative": negative.detach(), **pairs.mean_terms()}
    return LossOutput(positive + negative_weight * negative, terms)
