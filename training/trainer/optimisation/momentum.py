"""A copy of the encoder that follows it slowly, for objectives that learn from one."""

from copy import deepcopy

import torch
from torch import Tensor, nn

from training.models.dual_encoder import DualEncoder
from training.models.features import ModalityFeatures


class MomentumCopy(nn.Module):
    """A moving average of a model's weights, which encodes images without gradient (BYOL, section 3.1).

    It is in training mode when the model is, so batch norm takes the statistics of what it sees.
    """

    def __init__(self, model: DualEncoder) -> None:
        super().__init__()
        self.model = deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def forward(self, pixels: Tensor) -> ModalityFeatures:
        """Features of normalised images (B, 3, S, S)."""
        return self.model.encode_image(pixels)

    @torch.no_grad()
    def follow(self, model: DualEncoder, keep: float) -> None:
        """Go towards the model: `keep` of what this is, and 1 - `keep` of what the model is."""
        for own, other in zip(self.model.parameters(), model.parameters(), strict=True):
            own.lerp_(other, 1 - keep)
