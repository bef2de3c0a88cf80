"""Model and objective as one module, so that the loop sees inputs go in and a loss come out."""

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor, nn

from training.models.dual_encoder import DualEncoder
from training.models.features import Features, Modality, ModalityFeatures
from training.models.preprocessing import TokenBatch
from training.models.spectrogram import SpectrogramBatch
from training.objectives.base import LossOutput, Objective
from training.trainer.momentum import MomentumCopy


class TrainingTask(nn.Module):
    """Encodes aligned items, and computes the loss of their features."""

    def __init__(self, model: DualEncoder, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self.objective = objective
        self.momentum = MomentumCopy(model) if "momentum" in objective.requires else None

    def encode(
        self,
        pixels: Tensor,
        tokens: TokenBatch | None,
        spectrograms: SpectrogramBatch | None,
        view: Tensor | None = None,
    ) -> Mapping[Modality, ModalityFeatures]:
        """The features of normalised images (B, 3, S, S) and of what belongs to them, by modality.

        Args:
            pixels: Of the images.
            tokens: Of their texts.
            spectrograms: Of their sounds.
            view: The images changed in another way (B, 3, S, S), for objectives that compare two views.
        """
        features: Features = self.model(pixels, tokens, spectrograms)
        if view is None:
            return features.modalities
        image = replace(features["image"], view=self.model.encode_image(view).embedding)
        if self.momentum is not None:
            image = replace(image, momentum=self.momentum(pixels), momentum_view=self.momentum(view))
        return {**features.modalities, "image": image}

    def forward(self, features: Features) -> LossOutput:
        """The loss of a batch."""
        output: LossOutput = self.objective(features)
        return output

    def after_step(self) -> None:
        """Update what no gradient teaches, once after every step of the optimizer."""
        self.objective.after_step()
        if self.momentum is not None:
            self.momentum.follow(self.model, self.objective.momentum)
