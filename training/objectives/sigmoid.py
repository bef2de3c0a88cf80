"""The sigmoid loss: each image and text of a batch is judged by itself, matching or not (SigLIP)."""

from collections.abc import Callable
from typing import Annotated, Final, Literal, Self

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from training.common.errors import RecipeError
from training.models.features import PretrainedLogits
from training.objectives.base import LossOutput, ObjectiveContext, SimilarityObjective
from training.objectives.infonce import TemperatureConfig
from training.objectives.similarity import Similarities

# Zhai et al. 2023, section 3.2: most pairs of a batch do not match, and at the start all seem not to.
_FROM_SCRATCH: Final = PretrainedLogits(0.1, -10.0)


class SigmoidSettings(TemperatureConfig):
    """SigLIP's loss, with its temperature and bias where the towers bring them."""

    name: Literal["sigmoid"] = "sigmoid"
    temperature: Annotated[float, Field(gt=0)] | Literal["auto", "pretrained"] = Field(
        default="auto",
        description="At the start, when it is learned. pretrained: that of the towers, which SigLIP's bring; "
        "auto: the same where they bring one, else 0.1.",
    )
    bias: float | Literal["auto", "pretrained"] = Field(
        default="auto", description="The same of the bias, which is learned as well; else -10."
    )
    max_scale: float = Field(
        default=1000.0, gt=0, description="Upper limit of 1 / temperature when it is learned."
    )

    def with_temperature(self, read: Callable[[], PretrainedLogits | None]) -> Self:
        """Settings with the towers' temperature and bias as numbers, where they name none."""
        if not isinstance(self.temperature, str) and not isinstance(self.bias, str):
            return self
        start = self._start(read)
        return self.model_copy(update={"temperature": start.temperature, "bias": start.bias})

    def logits(self) -> PretrainedLogits | None:
        """How a model that was trained with these settings began to make logits; None if that is open."""
        if isinstance(self.temperature, str) or isinstance(self.bias, str):
            return None
        return PretrainedLogits(self.temperature, self.bias)

    def build(self, context: ObjectiveContext) -> "Sigmoid":
        """The objective with these settings."""
        start = self._start(lambda: None)
        return Sigmoid(self.model_copy(update={"temperature": start.temperature, "bias": start.bias}))

    def _start(self, read: Callable[[], PretrainedLogits | None]) -> PretrainedLogits:
        found = read()
        if found is None or found.bias is None:
            if "pretrained" in (self.temperature, self.bias):
                raise RecipeError(
                    "Temperature and bias are to be those of the towers, and they bring none: give one "
                    "SigLIP to both as model.image.pretrained and model.text.pretrained, with its own "
                    "poolings and width, or set the objective's temperature and bias to numbers."
                )
            found = _FROM_SCRATCH
        return PretrainedLogits(
            found.temperature if isinstance(self.temperature, str) else self.temperature,
            found.bias if isinstance(self.bias, str) else self.bias,
        )


def sigmoid_loss(pairs: Similarities, scale: Tensor | float, bias: Tensor | float) -> Tensor:
    """Mean over images of the sum over texts of -log sigmoid(z (t x.y + b)) (SigLIP, equation 1).

    z is 1 where image and text are partners and -1 elsewhere. Matches beside the partner cost nothing.

    Args:
        pairs: Only the rows are used: they have every pair once.
        scale: t, 1 / temperature.
        bias: b.

    Returns:
        Scalar.
    """
    logits = pairs.rows.values * scale + bias
    losses = -logsigmoid(torch.where(pairs.rows.partners(), logits, -logits))
    neutral = pairs.rows.neutral()
    if neutral is not None:
        losses = losses.masked_fill(neutral, 0.0)
    return losses.sum(dim=1).mean()


class Sigmoid(SimilarityObjective):
    """The sigmoid loss on the global embeddings of two modalities.

    Needs no softmax over the batch, so it suits batches of any size and fine-tunes SigLIP's towers.
    """

    def __init__(self, settings: SigmoidSettings) -> None:
        super().__init__(settings)
        logits = settings.logits()
        assert logits is not None
        assert logits.bias is not None
        self.scale = settings.scale()
        self.bias = nn.Parameter(torch.tensor(logits.bias), requires_grad=settings.learnable_temperature)

    def of_similarities(self, pairs: Similarities) -> LossOutput:
        """The loss of a batch; terms: mean similarities, temperature and bias."""
        scale = self.scale()
        total = sigmoid_loss(pairs, scale, self.bias)
        terms = {
            **pairs.mean_terms(),
            "temperature": scale.detach().reciprocal(),
            "bias": self.bias.detach(),
        }
        return LossOutput(total, terms)
