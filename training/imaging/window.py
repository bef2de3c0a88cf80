"""The grey levels of images with more than 8 bits: which of the stored values become black and white."""

from dataclasses import dataclass
from math import isfinite
from typing import Final

import numpy as np
from numpy.typing import NDArray

_SHARES: Final = (0.005, 0.995)
# Label masks and drawings: percentiles would merge their values.
_FEW_VALUES: Final = 64
_SHORT_BYTES: Final = 2
_GREY_LEVELS: Final = 256


@dataclass(frozen=True, slots=True)
class Window:
    """A range of stored values that is spread over all grey levels; values beyond it are clipped.

    Raises:
        ValueError: A number is not finite, or the width is not positive.
    """

    centre: float
    width: float

    def __post_init__(self) -> None:
        if not (isfinite(self.centre) and isfinite(self.width) and self.width > 0):
            raise ValueError("A window has a finite centre and a positive finite width.")

    @property
    def low(self) -> float:
        """Largest value that is black."""
        return self.centre - self.width / 2

    @property
    def high(self) -> float:
        """Smallest value that is white."""
        return self.centre + self.width / 2


def find_range(sample: NDArray[np.generic]) -> tuple[float, float]:
    """Return the values that become black and white: the percentiles 0.5 and 99.5 of finite values.

    Few different values are all kept.
    """
    if not sample.size:
        return 0.0, 0.0
    low, high = float(sample.min()), float(sample.max())
    if has_few_values(sample):
        return low, high
    first, last = np.quantile(sample.astype(np.float64), _SHARES, method="inverted_cdf")
    return (float(first), float(last)) if first < last else (low, high)


def seen_with_data(pixels: NDArray[np.generic], seen: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Leave out pixels of a value that means no data, such as -9999 or the largest negative float.

    Next to it, all others would share one grey level. Only samples (H, W, C) of more than 16 bits have such
    values.
    """
    if pixels.dtype.itemsize <= _SHORT_BYTES and pixels.dtype.kind != "f":
        return seen
    for sign in (1, -1):
        values = pixels[seen].astype(np.float64) * sign
        others = values[values > values.min()] if values.size else values
        if others.size:
            # Halves, as the largest floats have no differences.
            away, range_ = others.min() / 2 - values.min() / 2, others.max() / 2 - others.min() / 2
            if 0 < range_ < away / _GREY_LEVELS and (
                range_ < away / _GREY_LEVELS**2 or not has_few_values(values)
            ):
                seen = seen & (pixels != sign * values.min()).all(axis=-1)
    return seen


def has_few_values(sample: NDArray[np.generic]) -> bool:
    """Whether an image has so few different values that each may matter, as a label does."""
    return len(np.unique(sample)) <= _FEW_VALUES
