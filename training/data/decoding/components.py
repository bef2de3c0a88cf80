"""Morphology of small masks: dilation by squares, and connected components."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
Labels = NDArray[np.int64]
Value = TypeVar("Value", bound=np.generic)


def dilated(mask: NDArray[Value], pixels: int) -> NDArray[Value]:
    """Return the largest value of each pixel's square, which reaches a number of pixels to each side."""
    grown = mask
    for axis in (0, 1):
        left = pixels
        while left > 0:
            # Steps of 1, 2, 4 ... cover every distance between, from the border on as well.
            step = min(left, 1 + pixels - left)
            before = np.moveaxis(grown, axis, 0)
            after = before.copy()
            np.maximum(after[step:], before[:-step], out=after[step:])
            np.maximum(after[:-step], before[step:], out=after[:-step])
            grown = np.moveaxis(after, 0, axis)
            left -= step
    return grown


def label(mask: Mask) -> tuple[Labels, int]:
    """Number the 8-connected components of a mask (H, W) from 1 on; 0 is the rest."""
    height, width = mask.shape
    # A column without pixels ends each row.
    line = width + 1
    padded = np.zeros((height, line), np.int8)
    padded[:, :width] = mask
    flat = np.diff(padded.ravel(), prepend=0)
    starts, ends = np.flatnonzero(flat == 1), np.flatnonzero(flat == -1)
    # Runs of the next row that touch a run, corners included, are neighbours in their order.
    first = np.searchsorted(ends, starts + line)
    after = np.searchsorted(starts, ends + line, side="right")
    numbers = np.maximum(after - first, 0)
    upper = np.repeat(np.arange(len(starts)), numbers)
    lower = np.arange(len(upper)) - np.repeat(np.cumsum(numbers) - numbers, numbers) + first[upper]
    roots = np.arange(len(starts))
    while (apart := roots[upper] != roots[lower]).any():
        one, other = roots[upper[apart]], roots[lower[apart]]
        np.minimum.at(roots, np.maximum(one, other), np.minimum(one, other))
        while ((jumped := roots[roots]) != roots).any():
            roots = jumped
    if not len(starts):
        return np.zeros(mask.shape, np.int64), 0
    _, ids = np.unique(roots, return_inverse=True)
    run = np.cumsum(flat == 1)
    labels = np.where(padded.ravel() > 0, (ids + 1)[run - 1], 0)
    return labels.reshape(height, line)[:, :width], int(ids.max()) + 1
