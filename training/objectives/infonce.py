"""InfoNCE: each item picks its partner among the batch by a softmax over similarities."""

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from training.objectives.base import LossOutput, ObjectiveConfig, ObjectiveContext, SimilarityObjective
from training.objectives.similarity import Direction, Similarities


class InfoNCESettings(ObjectiveConfig):
    """CLIP's form by default: both directions alike and a learned temperature.

    ConVIRT's and LoVT's form: `image_weight` .75, `temperature` .1, `learnable_temperature` false.
    """

    name: Literal["infonce"] = "infonce"
    image_weight: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="Weight of image-to-text (first to second of a pair); the rest is the other way's.",
    )
    temperature: float = Field(default=0.07, gt=0, description="At the start, when it is learned.")
    learnable_temperature: bool = True
    max_scale: float = Field(
        default=100.0, gt=0, description="Upper limit of 1 / temperature when it is learned."
    )

    def build(self, context: ObjectiveContext) -> "InfoNCE":
        """The objective with these settings."""
        return InfoNCE(self)


def directional_cross_entropy(direction: Direction, scale: Tensor | float) -> Tensor:
    """Cross entropy of each item's partner among all items of the other modality.

    Columns that match a row besides the partner are removed from its denominator: they are neither its
    positive nor its negatives.

    Returns:
        Scalar, the mean over local rows.
    """
    logits = direction.values * scale
    neutral = direction.neutral()
    if neutral is not None:
        logits = logits.masked_fill(neutral, -torch.inf)
    return cross_entropy(logits, direction.own)


def info_nce(
    pairs: Similarities, scale: Tensor | float, *, image_weight: float = 0.5
) -> tuple[Tensor, Tensor, Tensor]:
    """InfoNCE of similarities (ConVIRT, equations 2-4; CLIP, figure 3).

    Args:
        pairs: Images are its rows, texts its columns.
        scale: 1 / temperature.
        image_weight: Weight of image-to-text; text-to-image has the rest.

    Returns:
        Three scalars: the weighted loss, image-to-text, text-to-image.
    """
    image_to_text = directional_cross_entropy(pairs.rows, scale)
    text_to_image = directional_cross_entropy(pairs.columns, scale)
    return image_weight * image_to_text + (1 - image_weight) * text_to_image, image_to_text, text_to_image


class LogitScale(nn.Module):
    """1 / temperature, learned by its logarithm up to a limit, or fixed."""

    fixed: Tensor

    def __init__(self, temperature: float, *, learnable: bool, limit: float) -> None:
        super().__init__()
        self.limit = limit
        # A buffer follows the module to its device. The settings decide it, so no checkpoint holds it.
        self.register_buffer("fixed", torch.tensor(1 / temperature, dtype=torch.float64), persistent=False)
        self.log_scale = nn.Parameter(torch.tensor(-math.log(temperature))) if learnable else None

    def forward(self) -> Tensor:
        """Scalar, 1 / temperature.

        The limit is put on the parameter and not on its exponential: a clamped exponential has no gradient,
        so a step past the limit would fix the temperature for good.
        """
        if self.log_scale is None:
            return self.fixed
        with torch.no_grad():
            self.log_scale.clamp_(max=math.log(self.limit))
        return self.log_scale.exp()


class InfoNCE(SimilarityObjective):
    """InfoNCE on the global embeddings of two modalities.

    The usual choice when batches are large; the softmax needs many negatives and a fitting temperature.
    """

    def __init__(self, settings: InfoNCESettings) -> None:
        super().__init__(settings)
        self.settings = settings
        self.scale = LogitScale(
            settings.temperature, learnable=settings.learnable_temperature, limit=settings.max_scale
        )

    def of_similarities(self, pairs: Similarities) -> LossOutput:
        """The loss of a batch; terms: both directions, mean similarities, temperature."""
        scale = self.scale()
        total, forth, back = info_nce(pairs, scale, image_weight=self.settings.image_weight)
        terms = {
            "first_to_second": forth.detach(),
            "second_to_first": back.detach(),
            **pairs.mean_terms(),
            "temperature": scale.detach().reciprocal(),
        }
        return LossOutput(total, terms)
