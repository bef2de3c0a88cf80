"""From uint8 images to what the image tower takes, on the device."""

from dataclasses import dataclass

import torch
from torch import Tensor

from training.data.augmentation import Augmentation
from training.models.preprocessing import ImagePreprocessing
from training.shortcuts.overlay import DigitOverlay
from training.trainer.batches import Inputs


@dataclass(frozen=True)
class PixelPreparation:
    """Makes normalised pixels of the images of a batch, or of some of them.

    Attributes:
        image: How the model takes images.
        augmentation: Of training images.
        digits: Pastes the digits of shortcuts; None where there are none.
    """

    image: ImagePreprocessing
    augmentation: Augmentation
    digits: DigitOverlay | None = None

    def __call__(self, inputs: Inputs, step: int | None, *, view: int = 0) -> Tensor:
        """Pixels (b, 3, S, S), changed at random in the way of a step and a view; None: as they are.

        Features (b, W) of a locked tower that stand for the images are returned as they are.
        """
        if inputs.images.ndim == 2:
            return inputs.images
        pixels = self.image.to_unit(inputs.images)
        if step is not None:
            pixels = self.augmentation(pixels, step, inputs.places, inputs.batch_size, view=view)
        if self.digits is not None and inputs.glyphs is not None:
            pixels = self.digits(pixels, inputs.glyphs)
        return self.image.normalise(pixels)

    def frames(self, inputs: Inputs, step: int | None, *, view: int = 0) -> Tensor:
        """Where points of these pixels come from (b, 2, 3), as in `ModalityFeatures`."""
        if step is None:
            return torch.eye(2, 3, device=inputs.images.device).repeat(len(inputs), 1, 1)
        return self.augmentation.frames(inputs.images, step, inputs.places, inputs.batch_size, view=view)
