"""The sigmoid loss: each image and text of a batch is judged on its own, matching or not (SigLIP)."""

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from training.common.errors import RecipeError
from training.models.features import PretrainedLogits
from training.objectives.base import LossOutput, SimilarityObjective
from training.objectives.infonce import LogitScale, MaxScale
from training.objectives.similarity import Similarities

# Zhai et al. 2023, section 3.2: most pairs of a batch don't match, and at the start none seems to.
_FROM_SCRATCH: Final = PretrainedLogits(0.1, -10.0)


def sigmoid_loss(pairs: Similarities, scale: Tensor | float, bias: Tensor | float) -> Tensor:
    """Mean over images of the sum over texts of -log sigmoid(z (t x.y + b)) (SigLIP, equation 1).

    z is 1 where image and text are partners, otherwise -1. Matches in addition to the partner cost nothing.

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
    """SigLIP's loss on the embeddings of two modalities (Zhai et al. 2023, equation 1).

    `mean_i sum_j -log sigmoid(z_ij (s_ij / t + b))`, with s the cosines (B, B), z_ij 1 for partners and -1
    for others, and t and b learned.

    It needs no softmax over the batch: use it with batches of any size, and to fine-tune SigLIP's towers.

    >>> from training.objectives import Sigmoid
    >>> Sigmoid(temperature=0.1, bias=-10.0)(torch.randn(8, 64), torch.randn(8, 64)).shape
    torch.Size([])
    """

    def __init__(
        self,
        temperature: Annotated[
            Annotated[float, Field(gt=0)] | Literal["auto", "pretrained"],
            Field(
                description="At the start, if it is learned. pretrained: that of the towers, which SigLIP's "
                "have; auto: the same if they have one, otherwise 0.1."
            ),
        ] = "auto",
        bias: Annotated[
            float | Literal["auto", "pretrained"],
            Field(description="The same for the bias, which is also learned; otherwise -10."),
        ] = "auto",
        *,
        learnable_temperature: bool = True,
        max_scale: MaxScale = 1000.0,
    ) -> None:
        super().__init__()
        if "pretrained" in (temperature, bias):
            raise ValueError("'pretrained' is for recipes, which name towers: give temperature and bias.")
        start = _start(temperature, bias, None)
        assert start.bias is not None
        self.scale = LogitScale(start.temperature, learnable=learnable_temperature, limit=max_scale)
        self.bias = nn.Parameter(torch.tensor(float(start.bias)), requires_grad=learnable_temperature)

    @classmethod
    def with_temperature(cls, settings: Any, read: Callable[[], PretrainedLogits | None]) -> Any:
        """Return settings with the towers' temperature and bias as numbers, unless they have both."""
        if not isinstance(settings.temperature, str) and not isinstance(settings.bias, str):
            return settings
        start = _start(settings.temperature, settings.bias, read())
        return settings.model_copy(update={"temperature": start.temperature, "bias": start.bias})

    @classmethod
    def logits(cls, settings: Any) -> PretrainedLogits | None:
        """Return temperature and bias at the start; None if they are still to be read from towers."""
        if isinstance(settings.temperature, str) or isinstance(settings.bias, str):
            return None
        return PretrainedLogits(settings.temperature, settings.bias)

    def of_similarities(self, pairs: Similarities) -> LossOutput:
        """Return the loss of a batch; terms: mean similarities, temperature and bias."""
        scale = self.scale()
        total = sigmoid_loss(pairs, scale, self.bias)
        terms = {
            **pairs.mean_terms(),
            "temperature": scale.detach().reciprocal(),
            "bias": self.bias.detach(),
        }
        return LossOutput(total, terms)


def _start(temperature: float | str, bias: float | str, towers: PretrainedLogits | None) -> PretrainedLogits:
    """Return temperature and bias at the start; what isn't a number is that of the towers.

    Raises:
        RecipeError: It has to be that of the towers, and they have none.
    """
    if towers is None or towers.bias is None:
        if "pretrained" in (temperature, bias):
            raise RecipeError(
                "Temperature and bias are to be those of the towers, and they bring none: give one "
                "SigLIP to both as model.image.pretrained and model.text.pretrained, with its own "
                "poolings and width, or set the objective's temperature and bias to numbers."
            )
        towers = _FROM_SCRATCH
    return PretrainedLogits(
        towers.temperature if isinstance(temperature, str) else temperature,
        towers.bias if isinstance(bias, str) else bias,
    )
