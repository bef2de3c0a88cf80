"""InfoNCE: each item picks its partner among the batch by a softmax over similarities."""

import math
from abc import ABC
from collections.abc import Callable
from typing import Annotated, Final, Literal, Self

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from training.common.errors import RecipeError
from training.models.features import PretrainedLogits
from training.objectives.base import LossOutput, ObjectiveConfig, ObjectiveContext, SimilarityObjective
from training.objectives.similarity import Direction, Similarities

_FROM_SCRATCH: Final = 0.07


class TemperatureConfig(ObjectiveConfig, ABC):
    """Settings of an objective with a softmax over similarities, whose temperature may be learned."""

    temperature: Annotated[float, Field(gt=0)] | Literal["auto", "pretrained"] = Field(
        default="auto",
        description="At the start, when it is learned. pretrained: that of the towers, which CLIP's bring; "
        "auto: the same where they bring one, else 0.07.",
    )
    learnable_temperature: bool = True
    max_scale: float = Field(
        default=100.0, gt=0, description="Upper limit of 1 / temperature when it is learned."
    )

    def with_temperature(self, read: Callable[[], PretrainedLogits | None]) -> Self:
        """Settings with the towers' temperature as a number, where they name none."""
        if not isinstance(self.temperature, str):
            return self
        return self.model_copy(update={"temperature": self._initial(read)})

    def logits(self) -> PretrainedLogits | None:
        """How a model that was trained with these settings began to make logits; None if that is open."""
        return None if isinstance(self.temperature, str) else PretrainedLogits(self.temperature)

    def scale(self) -> "LogitScale":
        """1 / temperature with these settings.

        Raises:
            RecipeError: The temperature is that of pretrained towers, and was not read from them.
        """
        temperature = self._initial(lambda: None)
        return LogitScale(temperature, learnable=self.learnable_temperature, limit=self.max_scale)

    def _initial(self, read: Callable[[], PretrainedLogits | None]) -> float:
        if not isinstance(self.temperature, str):
            return self.temperature
        found = read()
        if found is not None and found.bias is not None:
            # The temperature of a sigmoid fits no softmax.
            found = None
        if found is None and self.temperature == "pretrained":
            raise RecipeError(
                "The temperature is to be that of the towers, and they bring none: give one CLIP to both as "
                "model.image.pretrained and model.text.pretrained, with its own poolings and linear heads of "
                "its width, or set the objective's temperature to a number. SigLIP's belongs to the "
                "objective sigmoid."
            )
        return _FROM_SCRATCH if found is None else found.temperature


class InfoNCESettings(TemperatureConfig):
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
        self.scale = settings.scale()

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
