"""Model and objective as one module, so that the loop sees inputs go in and a loss come out."""

from torch import Tensor, nn

from training.models.dual_encoder import DualEncoder
from training.models.features import Features, ModalityFeatures, Source
from training.models.preprocessing import TokenBatch
from training.models.sounds.spectrogram import SpectrogramBatch
from training.objectives.base import LossOutput, Objective
from training.trainer.optimisation.momentum import AveragedWeights, MomentumCopy


class TrainedModule(nn.Module):
    """A module that may have something to do behind every step of its optimizer."""

    def after_step(self) -> None:
        """Update what no gradient teaches, once after every step of the optimizer; most need nothing."""


class TrainingTask(TrainedModule):
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
            pixels: Of the images.
            tokens: Of their texts, or the text tower's pooled features of them (B, W).
            spectrograms: Of their sounds.
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
        output: LossOutput = self.objective(features)
        return output

    def after_step(self) -> None:
        """Update what no gradient teaches, once after every step of the optimizer."""
        self.objective.after_step()
        if self.momentum is not None:
            self.momentum.follow(self.model, self.objective.momentum)
        if self.average is not None:
            self.average.after_step(self.model)

    @property
    def result(self) -> DualEncoder:
        """The model that is measured and kept."""
        return self.model if self.average is None else self.average.model
