"""The contract of every objective: Features in, LossOutput out."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

from training.models.features import Features


@dataclass(frozen=True, slots=True)
class LossOutput:
    """A loss and what it is made of.

    Attributes:
        total: Scalar to minimise, with gradient.
        terms: Detached scalars to report, by name.
    """

    total: Tensor
    terms: Mapping[str, Tensor]


class ObjectiveConfig(BaseModel):
    """Settings of an objective; a subclass adds its own and a literal `name`."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Objective(nn.Module, ABC):
    """A loss over Features. It owns no input or output, no device and no encoder.

    Its own parameters (a logit scale, a critic) are trained and saved with the model's.
    """

    @abstractmethod
    def forward(self, features: Features) -> LossOutput:
        """The loss of one batch, computed in float32 outside autocast."""
