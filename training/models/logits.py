"""How pretrained towers turn the cosine of an image and a text into a logit."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PretrainedLogits:
    """A cosine is divided by the temperature, and the bias is added.

    Attributes:
        temperature: Above 0.
        bias: Of SigLIP's sigmoid; None: of a softmax, which has none.
    """

    temperature: float
    bias: float | None = None
