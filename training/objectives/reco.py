"""ReCo: matching pairs to cosine 1, others to cosine 0 or below, without a softmax or a temperature."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from training.models.features import Features
from training.objectives.base import LossOutput, Objective, ObjectiveConfig
from training.objectives.similarity import cosine_matrix, mean_cosines, negative_pairs

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

    def build(self) -> "ReCo":
        """The objective with these settings."""
        return ReCo(self)


def relaxed_contrastive(
    cosines: Tensor,
    *,
    negative_weight: float = 0.6,
    one_sided: bool = True,
    positive_mask: Tensor | None = None,
    reduction: Literal["paper", "balanced"] = "paper",
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss of a matrix of cosines (ReCo, equation 3; not one-sided: its orthogonality constraint).

    There are B matching pairs and B(B - 1) others, so the sum leans to the others as B grows. `balanced`
    multiplies the matching pairs by 64/B and the others by 64*63 / (B(B - 1)); at B = 64 both are equal.

    Args:
        cosines: (B, B), row i image i, column j text j.
        negative_weight: Weight of the pairs that do not match.
        one_sided: Whether cosines below 0 are free for them.
        positive_mask: (B, B) bool, True where image i and text j match; off the diagonal these cost nothing.
        reduction: See above.

    Returns:
        Three scalars: the loss, its part of matching pairs, its part of others before their weight.
    """
    batch = cosines.shape[0]
    positive = (1 - cosines.diagonal()).square().sum()
    others = cosines.clamp(min=0) if one_sided else cosines
    negative = others.masked_fill(~negative_pairs(cosines, positive_mask), 0).square().sum()
    if reduction == "balanced":
        positive = positive * (REFERENCE_BATCH / batch)
        negative = negative * (REFERENCE_BATCH * (REFERENCE_BATCH - 1) / max(1, batch * (batch - 1)))
    return positive + negative_weight * negative, positive, negative


class ReCo(Objective):
    """ReCo on the global embeddings of images and texts.

    Made for small batches and for data where pairs that do not match are often alike, such as radiographs.
    """

    def __init__(self, settings: ReCoSettings) -> None:
        super().__init__()
        self.settings = settings

    def forward(self, features: Features) -> LossOutput:
        """The loss of one batch; terms: both parts, and the mean cosine of matching and of other pairs."""
        image, text = features["image"].embedding, features["text"].embedding
        with torch.autocast(image.device.type, enabled=False):
            cosines = cosine_matrix(image, text)
            total, positive, negative = relaxed_contrastive(
                cosines,
                negative_weight=self.settings.negative_weight,
                one_sided=self.settings.one_sided,
                positive_mask=features.positive_mask,
                reduction=self.settings.reduction,
            )
            terms = {
                "positive": positive.detach(),
                "negative": negative.detach(),
                **mean_cosines(cosines, features.positive_mask),
            }
        return LossOutput(total, terms)
