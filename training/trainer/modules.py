"""Modules that a run trains: inputs go in, and a loss comes out."""

from copy import deepcopy

import torch
from torch import Tensor, nn

from training.models.dual_encoder import DualEncoder
from training.models.features import Features, ModalityFeatures, Source
from training.models.preprocessing import SpectrogramBatch, TokenBatch
from training.objectives.base import LossOutput, Objective, errors_of_own_code


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
    """The average that is measured and kept instead of the last weights.

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


class TrainedModule(nn.Module):
    """A module with its loss, as a run trains it."""

    @property
    def tower(self) -> nn.Module | None:
        """The part that may bring pretrained weights and has a learning rate of its own, if there is one."""
        return None

    def after_step(self) -> None:
        """Update what no gradient teaches, once after every step of the optimizer; most need nothing."""


class EncoderModule(TrainedModule):
    """Encodes aligned items, and computes the loss of their features."""

    def __init__(self, model: DualEncoder, objective: Objective, ema_decay: float | None = None) -> None:
        super().__init__()
        self.model = model
        self.objective = objective
        self.average = None if ema_decay is None else AveragedWeights(model, ema_decay)
        self.momentum = MomentumCopy(model) if "momentum" in objective.requires else None

    def encode(
        self,
        pixels: Tensor,
        tokens: TokenBatch | Tensor | None,
        spectrograms: SpectrogramBatch | None,
        view: Tensor | None = None,
    ) -> dict[Source, ModalityFeatures]:
        """The features of normalised images (B, 3, S, S), of what belongs to them, and of other views.

        Args:
            pixels: Pixels of the images.
            tokens: Tokens of their texts, or the text tower's pooled features of them (B, W).
            spectrograms: Spectrograms of their sounds.
            view: The images changed in another way (B, 3, S, S), for objectives that compare two views.
        """
        encoded: Features = self.model(pixels, tokens, spectrograms)
        features = dict(encoded.modalities)
        if view is not None:
            features["view"] = self.model.encode_image(view)
            if self.momentum is not None:
                features["momentum"], features["momentum_view"] = self.momentum(pixels), self.momentum(view)
        return features

    def forward(self, features: Features) -> LossOutput:
        """The loss of a batch."""
        return self.objective.compute(features)

    def after_step(self) -> None:
        """Update what no gradient teaches, once after every step of the optimizer."""
        with errors_of_own_code():
            self.objective.after_step()
        if self.momentum is not None:
            self.momentum.follow(self.model, self.objective.momentum)
        if self.average is not None:
            self.average.after_step(self.model)

    @property
    def result(self) -> DualEncoder:
        """The model that is measured and kept."""
        return self.model if self.average is None else self.average.model
