"""Model and objective as one module, so that the loop sees inputs go in and a loss come out."""

from collections.abc import Mapping

from torch import Tensor, nn

from training.models.dual_encoder import DualEncoder
from training.models.features import Features, Modality, ModalityFeatures
from training.models.preprocessing import TokenBatch
from training.models.spectrogram import SpectrogramBatch
from training.objectives.base import LossOutput, Objective


class TrainingTask(nn.Module):
    """Encodes aligned items, and computes the loss of their features."""

    def __init__(self, model: DualEncoder, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self.objective = objective

    def encode(
        self, pixels: Tensor, tokens: TokenBatch | None, spectrograms: SpectrogramBatch | None
    ) -> Mapping[Modality, ModalityFeatures]:
        """The features of normalised images (B, 3, S, S) and of what belongs to them, by modality."""
        features: Features = self.model(pixels, tokens, spectrograms)
        return features.modalities

    def forward(self, features: Features) -> LossOutput:
        """The loss of a batch."""
        output: LossOutput = self.objective(features)
        return output
