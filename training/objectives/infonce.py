"""InfoNCE: each item picks its partner among the batch by a softmax over cosines."""

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from training.models.features import Features
from training.objectives.base import LossOutput, Objective, ObjectiveConfig
from training.objectives.similarity import cosine_matrix, mean_cosines


class InfoNCESettings(ObjectiveConfig):
    """CLIP's form by default: both directions alike and a learned temperature.

    ConVIRT's and LoVT's form: `image_weight` .75, `temperature` .1, `learnable_temperature` false.
    """

    name: Literal["infonce"] = "infonce"
    image_weight: float = Field(
        default=0.5, ge=0, le=1, description="Weight of image-to-text; text-to-image has the rest."
    )
    temperature: float = Field(default=0.07, gt=0, description="At the start, when it is learned.")
    learnable_temperature: bool = True
    max_scale: float = Field(
        default=100.0, gt=0, description="Upper limit of 1 / temperature when it is learned."
    )

    def build(self) -> "InfoNCE":
        """The objective with these settings."""
        return InfoNCE(self)


def directional_cross_entropy(logits: Tensor, positive_mask: Tensor | None = None) -> Tensor:
    """Cross entropy of each row's diagonal entry against its row.

    Columns that match a row besides the diagonal are removed from its denominator: they are neither its
    positive nor its negatives.

    Args:
        logits: (B, B).
        positive_mask: (B, B) bool, True where row and column match.

    Returns:
        Scalar, the mean over rows.
    """
    if positive_mask is not None:
        eye = torch.eye(logits.shape[0], dtype=torch.bool, device=logits.device)
        logits = logits.masked_fill(positive_mask & ~eye, -torch.inf)
    return cross_entropy(logits, torch.arange(logits.shape[0], device=logits.device))


def info_nce(
    cosines: Tensor,
    scale: Tensor | float,
    *,
    image_weight: float = 0.5,
    positive_mask: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """InfoNCE of a matrix of cosines (ConVIRT, equations 2-4; CLIP, figure 3).

    Args:
        cosines: (B, B), row i image i, column j text j.
        scale: 1 / temperature.
        image_weight: Weight of image-to-text; text-to-image has the rest.
        positive_mask: (B, B) bool, True where image i and text j match.

    Returns:
        Three scalars: the weighted loss, image-to-text, text-to-image.
    """
    logits = cosines * scale
    image_to_text = directional_cross_entropy(logits, positive_mask)
    transposed = None if positive_mask is None else positive_mask.T
    text_to_image = directional_cross_entropy(logits.T, transposed)
    return image_weight * image_to_text + (1 - image_weight) * text_to_image, image_to_text, text_to_image


class InfoNCE(Objective):
    """InfoNCE on the global embeddings of images and texts.

    The usual choice when batches are large; the softmax needs many negatives and a fitting temperature.
    """

    def __init__(self, settings: InfoNCESettings) -> None:
        super().__init__()
        self.settings = settings
        log_scale = torch.tensor(-math.log(settings.temperature))
        if settings.learnable_temperature:
            self.log_scale = nn.Parameter(log_scale)
        else:
            self.register_buffer("log_scale", log_scale)

    def scale(self) -> Tensor:
        """Scalar, 1 / temperature.

        The limit is put on the parameter and not on its exponential: a clamped exponential has no gradient,
        so a step past the limit would fix the temperature for good.
        """
        if self.settings.learnable_temperature:
            with torch.no_grad():
                self.log_scale.clamp_(max=math.log(self.settings.max_scale))
        return self.log_scale.exp()

    def forward(self, features: Features) -> LossOutput:
        """The loss of one batch; terms: both directions, mean cosines of matches and others, temperature."""
        image, text = features["image"].embedding, features["text"].embedding
        with torch.autocast(image.device.type, enabled=False):
            cosines = cosine_matrix(image, text)
            scale = self.scale()
            total, image_to_text, text_to_image = info_nce(
                cosines,
                scale,
                image_weight=self.settings.image_weight,
                positive_mask=features.positive_mask,
            )
            terms = {
                "image_to_text": image_to_text.detach(),
                "text_to_image": text_to_image.detach(),
                **mean_cosines(cosines, features.positive_mask),
                "temperature": scale.detach().reciprocal(),
            }
        return LossOutput(total, terms)
