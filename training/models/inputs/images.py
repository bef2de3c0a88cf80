"""Images as the arrays of pixels that an image tower takes."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from training.imaging.images import to_planes
from training.imaging.resizing import to_square
from training.models.config import ImagePreprocessingConfig

Pixels = NDArray[np.uint8]


class ImageInput:
    """Base of encoders of images: the preparation of their input.

    Attributes:
        image_config: Preprocessing of images.
    """

    image_config: ImagePreprocessingConfig

    @property
    def min_image_side(self) -> int | None:
        """Pixels that both sides of a decoded image must keep; None: full resolution."""
        return self.image_config.min_side

    def prepare_image(self, image: Image.Image) -> Pixels:
        """A decoded image as (3, S, S), which `embed_images` takes in batches; threads may share it."""
        return to_pixels(image, self.image_config)


def to_pixels(image: Image.Image, config: ImagePreprocessingConfig) -> Pixels:
    """A decoded image as (3, S, S), resized with an antialiased filter."""
    return to_planes(to_square(image, config.square))
