"""InfoNCE: each item picks its partner in the batch by a softmax over similarities."""

import math
from abc import ABC
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from training.common.errors import RecipeError
from training.models.features import PretrainedLogits
from training.objectives.base import LossOutput, Objective, SimilarityObjective
from training.objectives.similarity import Direction, Similarities

_FROM_SCRATCH: Final = 0.07

Temperature = Annotated[
    Annotated[float, Field(gt=0)] | Literal["auto", "pretrained"],
    Field(
        description="At the start, if it is learned. pretrained: that of the towers, which CLIP's have; "
        "auto: the same if they have one, otherwise 0.07."
    ),
]
MaxScale = Annotated[float, Field(gt=0, description="Upper limit of 1 / temperature if it is learned.")]
ImageWeight = Annotated[
    float,
    Field(
        ge=0,
        le=1,
        description="Weight of image-to-text (first to second of a pair); text-to-image has the rest.",
    ),
]


class TemperatureObjective(Objective, ABC):
    """An objective with a softmax over similarities, whose temperature may come from pretrained towers."""

    @classmethod
    def with_temperature(cls, settings: Any, read: Callable[[], PretrainedLogits | None]) -> Any:
        """Return settings with the towers' temperature as a number, unless they have one."""
        if not isinstance(settings.temperature, str):
            return settings
        pretrained = read()
        if pretrained is not None and pretrained.bias is not None:
            # The temperature of a sigmoid doesn't suit a softmax.
            pretrained = None
        if pretrained is None and settings.temperature == "pretrained":
            raise RecipeError(
                "The temperature is to be that of the towers, and they bring none: give one CLIP to both as "
                "model.image.pretrained and model.text.pretrained, with its own poolings and linear heads of "
                "its width, or set the objective's temperature to a number. SigLIP's belongs to the "
                "objective sigmoid."
            )
        return settings.model_copy(
            update={"temperature": _FROM_SCRATCH if pretrained is None else pretrained.temperature}
        )

    @classmethod
    def logits(cls, settings: Any) -> PretrainedLogits | None:
        """Return the temperature at the start; None if it is still to be read from towers."""
        return None if isinstance(settings.temperature, str) else PretrainedLogits(settings.temperature)


class LogitScale(nn.Module):
    """1 / temperature, learned by its logarithm up to a limit, or fixed."""

    fixed: Tensor

    def __init__(self, temperature: float | str, *, learnable: bool, limit: float) -> None:
        super().__init__()
        if temperature == "pretrained":
            raise ValueError("temperature='pretrained' is for recipes, which name towers: give a number.")
        temperature = _FROM_SCRATCH if isinstance(temperature, str) else temperature
        self.limit = limit
        # A buffer moves to the module's device. The arguments decide it, so no checkpoint needs it.
        self.register_buffer("fixed", torch.tensor(1 / temperature, dtype=torch.float64), persistent=False)
        self.log_scale = nn.Parameter(torch.tensor(-math.log(temperature))) if learnable else None

    def forward(self) -> Tensor:
        """Return 1 / temperature, a scalar.

        The limit applies to the parameter and not to its exponential: a clamped exponential has no gradient,
        so a step past the limit would fix the temperature for good.
        """
        if self.log_scale is None:
            return self.fixed
        with torch.no_grad():
            self.log_scale.clamp_(max=math.log(self.limit))
        return self.log_scale.exp()


def directional_cross_entropy(direction: Direction, scale: Tensor | float) -> Tensor:
    """Cross entropy of each item's partner among all items of the other modality.

    Columns that match a row in addition to the partner are removed from its denominator: they are neither
    positives nor negatives.

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
        pairs: Images are the rows, texts the columns.
        scale: 1 / temperature.
        image_weight: Weight of image-to-text; text-to-image has the rest.

    Returns:
        Three scalars: the weighted loss, image-to-text, text-to-image.
    """
    image_to_text = directional_cross_entropy(pairs.rows, scale)
    text_to_image = directional_cross_entropy(pairs.columns, scale)
    return image_weight * image_to_text + (1 - image_weight) * text_to_image, image_to_text, text_to_image


class InfoNCE(TemperatureObjective, SimilarityObjective):
    """InfoNCE on the embeddings of two modalities (CLIP; ConVIRT, equations 2-4).

    `w mean_i -log softmax_j(s_ij / t)_i + (1 - w) mean_j -log softmax_i(s_ij / t)_j`, with s the cosines
    (B, B) of images and texts, t the temperature and w `image_weight`.

    The baseline of all others. Use it with large batches whose pairs really differ; the softmax needs many
    negatives and a fitting temperature. The defaults are CLIP's; those of ConVIRT and LoVT are `image_weight`
    .75, `temperature` .1 and `learnable_temperature` False.

    >>> from training.objectives import InfoNCE
    >>> InfoNCE(temperature=0.1)(torch.randn(8, 64), torch.randn(8, 64)).shape
    torch.Size([])
    """

    def __init__(
        self,
        temperature: Temperature = "auto",
        *,
        learnable_temperature: bool = True,
        max_scale: MaxScale = 100.0,
        image_weight: ImageWeight = 0.5,
    ) -> None:
        super().__init__()
        self.image_weight = image_weight
        self.scale = LogitScale(temperature, learnable=learnable_temperature, limit=max_scale)

    def of_similarities(self, pairs: Similarities) -> LossOutput:
        """Return the loss of a batch; terms: both directions, mean similarities, temperature."""
        scale = self.scale()
        total, forth, back = info_nce(pairs, scale, image_weight=self.image_weight)
        terms = {
            "first_to_second": forth.detach(),
            "second_to_first": back.detach(),
            **pairs.mean_terms(),
            "temperature": scale.detach().reciprocal(),
        }
        return LossOutput(total, terms)
