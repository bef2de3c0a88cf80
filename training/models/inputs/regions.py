"""Parts of a picture: boxes, and the grid of regions that an encoder sees of it."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.imaging.resizing import Square, shown

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Box:
    """A part of an upright picture, in fractions of its width and height from the left and the top."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class RegionGrid:
    """Embeddings of the regions of a picture.

    Attributes:
        regions: (S * S, D), squares of a grid row by row, not normalised.
        area: The part of the picture that the grid lies on; beyond it where the picture is padded.
    """

    regions: Floats
    area: Box

    @property
    def side(self) -> int:
        """Number S of regions in a row."""
        return math.isqrt(len(self.regions))

    def pool(self, box: Box) -> Floats | None:
        """The unit vector (D,) of a box: the mean of its regions, each weighted by its share in the box.

        None where the grid shows nothing of the box.
        """
        weights = self.shares(box).ravel()
        pooled = weights @ self.regions.astype(np.float64)
        length = float(np.linalg.norm(pooled))
        # Positions of a box at the edge of the grid are rounded.
        if weights.sum() < 1e-6 or length == 0:
            return None
        vector: Floats = (pooled / length).astype(np.float32)
        return vector

    def shares(self, box: Box) -> NDArray[np.float64]:
        """Share (S, S) of each region that lies in a box."""
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
