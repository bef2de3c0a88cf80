"""Prepared pixels of images, boxes, and grids of regions."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from training.imaging.images import to_planes
from training.imaging.resizing import Square, shown, to_square
from training.models.config import ImagePreprocessingConfig

Pixels = NDArray[np.uint8]
Floats = NDArray[np.float32]


class ImageInput:
    """Base of encoders: prepares images."""

    image_config: ImagePreprocessingConfig

    @property
    def min_image_side(self) -> int | None:
        """Pixels that both sides keep if decoding downscales an image; None: full resolution."""
        return self.image_config.min_side

    def prepare_image(self, image: Image.Image) -> Pixels:
        """A decoded image as (3, S, S), input of `embed_images` when stacked; thread-safe."""
        return to_pixels(image, self.image_config)


def to_pixels(image: Image.Image, config: ImagePreprocessingConfig) -> Pixels:
    """A decoded image as (3, S, S), resized with an antialiased filter."""
    return to_planes(to_square(image, config.square))


@dataclass(frozen=True, slots=True)
class Box:
    """A part of an upright picture; x and y from the top left, in fractions of its width and height."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class RegionGrid:
    """Embeddings (S * S, D) of the regions of a picture, squares row by row, not normalised.

    `area` is the part of the picture that the grid covers; it exceeds the picture where that is padded.
    """

    regions: Floats
    area: Box

    @property
    def side(self) -> int:
        """Number S of regions in a row."""
        return math.isqrt(len(self.regions))

    def pool(self, box: Box) -> Floats | None:
        """Unit vector (D,) of a box: the mean of its regions, weighted by overlap; None without overlap."""
        weights = self.shares(box).ravel()
        pooled = weights @ self.regions.astype(np.float64)
        length = float(np.linalg.norm(pooled))
        # Edges of a box may be off by rounding.
        if weights.sum() < 1e-6 or length == 0:
            return None
        vector: Floats = (pooled / length).astype(np.float32)
        return vector

    def shares(self, box: Box) -> NDArray[np.float64]:
        """Share (S, S) of each region inside a box."""
        across = _shares(box.x, box.x + box.width, self.area.x, self.area.width, self.side)
        down = _shares(box.y, box.y + box.height, self.area.y, self.area.height, self.side)
        shares: NDArray[np.float64] = down[:, None] * across
        return shares

    def similarities(self, vector: Floats) -> Floats:
        """Share of each region (S, S) in the cosine of the picture with a unit vector (D,).

        Region k with embedding r_k has s_k = r_k . q / |mean of all r|, so that the mean of s is the cosine
        of picture and query: a class activation map (Zhou et al., "Learning deep features for discriminative
        localization", 2016) whose class is the query.
        """
        length = max(float(np.linalg.norm(self.regions.mean(axis=0))), float(np.finfo(np.float32).tiny))
        parts: Floats = (self.regions @ vector / length).reshape(self.side, self.side)
        return parts


def grid_of(regions: Floats, picture: tuple[int, int], square: Square) -> RegionGrid:
    """Place the regions (S * S, D) of an encoder's square on a picture of this width and height."""
    return RegionGrid(regions, Box(*shown(picture, square)))


def _shares(begin: float, end: float, origin: float, length: float, side: int) -> NDArray[np.float64]:
    edges = origin + np.arange(side + 1) * (length / side)
    inside = np.minimum(edges[1:], end) - np.maximum(edges[:-1], begin)
    shares: NDArray[np.float64] = np.clip(inside * side / length, 0.0, 1.0)
    return shares
