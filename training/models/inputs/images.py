"""Images as the arrays of pixels that an image tower takes."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from training.models.config import ImagePreprocessingConfig
from training.models.inputs.resize import to_square

Pixels = NDArray[np.uint8]


def to_pixels(image: Image.Image, config: ImagePreprocessingConfig) -> Pixels:
    """A decoded image as (3, S, S), resized with an antialiased bicubic filter."""
    square = to_square(image, config.size, config.resize, config.resize_to)
    return np.array(np.asarray(square).transpose(2, 0, 1), order="C")
