"""Copies of the encoder that follow it slowly: to learn from, or to keep."""

from copy import deepcopy

import torch
from torch import Tensor, nn

from training.models.dual_encoder import DualEncoder
from training.models.features import ModalityFeatures


class MovingAverage(nn.Module):
    """A moving average of a model's weights, without gradient."""

    def __init__(self, model: DualEncoder) -> None:
        super().__init__()
        self.model = deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def follow(self, model: DualEncoder, keep: float | Tensor) -> None:
        """Go towards the model: `keep` of the average, and 1 - `keep` of the model."""
        for own, other in zip(self.model.parameters(), model.parameters(), strict=True):
            own.lerp_(other, 1 - keep)


class MomentumCopy(MovingAverage):
    """Encodes images for objectives that learn from a slow copy (BYOL, section 3.1).

    It is in training mode when the model is, so batch norm takes the statistics of what it sees.
    """

    @torch.no_grad()
    def forward(self, pixels: Tensor) -> ModalityFeatures:
        """Features of normalised images (B, 3, S, S)."""
        return self.model.encode_image(pixels)


class AveragedWeights(MovingAverage):
    """The average that is measured and kept in place of the last weights.

    At step t it keeps (1 + t) / (10 + t) at most, so that the weights of the start are soon forgotten.
    """

    steps: Tensor

    def __init__(self, model: DualEncoder, decay: float) -> None:
        super().__init__(model)
        self.decay = decay
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def after_step(self, model: DualEncoder) -> None:
        """Take in the weights of a step; statistics of batch norm are the model's."""
        # On the device, which no step waits for.
        self.follow(model, ((1 + self.steps) / (10 + self.steps)).clamp(max=self.decay))
        for own, other in zip(self.model.buffers(), model.buffers(), strict=True):
            own.copy_(other)
        self.steps += 1
