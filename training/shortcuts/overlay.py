"""Pastes handwritten digits along the top of images, in batches on the device."""

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from training.common.errors import DataError
from training.shortcuts.glyphs import GLYPH_SIZE, draw_glyphs

DIGITS: Final = 6


class DigitOverlay:
    """Pastes six digits into the top row of each image, a sixth of the width apart.

    Where a sixth of the width is less than 28 pixels, the digits are made smaller to fit.

    Args:
        seed: Seed of the handwritings.
        variants: V, handwritings of each digit.
    """

    def __init__(self, seed: int, variants: int) -> None:
        glyphs = torch.from_numpy(draw_glyphs(seed, variants)).flatten(0, 1)
        self._glyphs = glyphs.to(torch.float32).div_(255.0)
        self._fitted: dict[tuple[int, torch.device, torch.dtype], Tensor] = {}

    def __call__(self, images: Tensor, glyphs: Tensor) -> Tensor:
        """Images with their digits; those given are not changed.

        Args:
            images: (B, 3, S, S), uint8 or float in [0, 1].
            glyphs: (B, 6) int64, digit * V + handwriting, from left to right.

        Raises:
            DataError: The images are less than six pixels wide.
        """
        height, width = images.shape[-2:]
        stride = width // DIGITS
        side = min(GLYPH_SIZE, stride, height)
        if side == 0:
            raise DataError(f"Images of {width} pixels have no room for {DIGITS} digits: set a larger size.")
        chosen = self._fit(side, images)[glyphs.to(images.device, non_blocking=True)]
        stamped = images.clone()
        for place in range(DIGITS):
            left = place * stride
            stamped[:, :, :side, left : left + side] = chosen[:, place, None]
        return stamped

    def _fit(self, side: int, images: Tensor) -> Tensor:
        """All glyphs (10 * V, side, side) in the kind and range of the images, on their device."""
        key = side, images.device, images.dtype
        if key not in self._fitted:
            glyphs = self._glyphs
            if side != GLYPH_SIZE:
                glyphs = functional.interpolate(
                    glyphs[:, None], size=(side, side), mode="bilinear", antialias=True
                )[:, 0]
            if not images.is_floating_point():
                glyphs = (255.0 * glyphs).round()
            self._fitted[key] = glyphs.to(images.device, images.dtype, non_blocking=True)
        return self._fitted[key]
