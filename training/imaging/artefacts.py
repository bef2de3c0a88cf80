"""Artefacts of a film, distinguished from tissue by position: markers, wedges, broken cells and borders.

A border is made of lines of one value from a side of the film to a step. A marker, a wedge or a broken cell
is brighter, or darker, than all around it by more than tissue changes over the same distance: components of
the pixels beyond a threshold are compared with the ring around them, for thresholds that leave more and
more pixels beyond. Edges belong to the component, however soft they are.
"""

from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Mask = NDArray[np.bool_]
Labels = NDArray[np.int64]
Value = TypeVar("Value", bound=np.generic)

# One value over this share of all pixels, with nearly nothing beyond it, is a border or padding.
_BORDER_SHARE: Final = 0.05
_BEYOND_SHARE: Final = 0.005
# Lines of a border, relative to the spread of the middle of the film: how near they are to the first of
# them, how far apart their own values are, and how far the picture next to them is away.
_LINE_DRIFT: Final = 1 / 16
_LINE_SPREAD: Final = 1 / 4
_LINE_STEP: Final = 1 / 5
# A soft edge of a border: the most lines, and some more where it fades into tissue, as shares of a side.
_EDGE_LINES: Final = 0.12
_FADE_LINES: Final = 0.02
# Slope of the edge, as a multiple of that of the border: a ramp is no border.
_EDGE_SLOPES: Final = 4
# The least of a film that is left when its artefacts are away.
_LEAST_LEFT: Final = 0.05
# Shares of the picture beyond the thresholds.
_SHARES: Final = (0.003, 0.01, 0.025, 0.05, 0.09, 0.15)
_ROUNDS: Final = 3
# Pixels from a component to the ring around it, and the width of the ring.
_TO_RING: Final = 2
_RING: Final = 3
# Pixels of a component that are compared with its ring: those that are as near to its edge.
_SHORE: Final = 4
# Pixels near a component that are above nearly all others by this share of their range are its edge.
_EDGE_RANGES: Final = 0.1
# Least share of a component, closed, that is beyond the threshold.
_SOLID: Final = 0.75
# Height of a component over its ring: as a multiple of what nearly all of the film changes over this
# distance, and of the range of all that is not beyond the threshold.
_HEIGHT_CHANGES: Final = 2.0
_CHANGES_QUANTILE: Final = 0.9
_HEIGHT_RANGES: Final = 1.0
_LOW: Final = 0.02
# A component of one value need not be as high: a small one with noise, or one of any size without.
_FLAT_HEIGHT_RANGES: Final = 0.3
_FLAT_SHARE: Final = 0.025
_FLAT_RANGES: Final = (0.2, 0.003)
# The percentiles of a window, and the least share of it that leaving out an artefact gains.
_WINDOW: Final = (0.005, 0.995)
_LEAST_GAIN: Final = 0.01
# A rest without structure is the ground of a picture and not a film: the spread of the means of its blocks,
# as a share of the whole range, and as a multiple of the noise.
_BLOCK: Final = 8
_LEAST_STRUCTURE: Final = 1 / 150
_STRUCTURE_NOISES: Final = 0.5


def find_picture(values: Values, seen: Mask) -> Mask:
    """Return the seen pixels (H, W), whose values are finite, that are neither artefacts nor borders."""
    kept = seen
    # The range that a component is measured by has no artefacts of the other end in the second round.
    for without in (_without_padding, _without_lines, _without_components, _without_components):
        for sign in (1.0, -1.0):
            rest = without(sign * values, kept)
            if rest is not kept and _gains(sign * values, rest, kept) and _is_film(values, rest, kept):
                kept = rest
    return kept


def _gains(values: Values, rest: Mask, before: Mask) -> bool:
    """Tell whether the rest has more grey levels without what was left out at the upper end."""
    if not rest.any():
        return False
    low, high = np.quantile(values[rest], _WINDOW)
    return bool(np.quantile(values[before], _WINDOW[1]) - high > _LEAST_GAIN * (high - low))


def _is_film(values: Values, rest: Mask, before: Mask) -> bool:
    """Tell whether what an artefact leaves is a film, and not the empty ground of a picture."""
    if rest.sum() < _LEAST_LEFT * rest.size:
        return False
    height, width = (side // _BLOCK * _BLOCK for side in values.shape)
    if not height or not width:
        return False
    blocks = (height // _BLOCK, _BLOCK, width // _BLOCK, _BLOCK)
    shown = rest[:height, :width]
    numbers = shown.reshape(blocks).sum(axis=(1, 3))
    sums = np.where(shown, values[:height, :width], 0).reshape(blocks).sum(axis=(1, 3))
    full = numbers >= _BLOCK
    if full.sum() < 2:
        return False
    means = sums[full] / numbers[full]
    structure = _spread(means)
    there = values[before]
    if not structure > _LEAST_STRUCTURE * (there.max() - there.min()):
        return False
    pairs = rest[:, 1:] & rest[:, :-1]
    noise = np.median(np.abs(np.diff(values, axis=1)[pairs])) if pairs.any() else 0.0
    return bool(structure > _STRUCTURE_NOISES * noise)


def _without_padding(values: Values, kept: Mask) -> Mask:
    """Leave out the mode at the upper end, and the few values beyond it."""
    levels, counts = np.unique(values[kept], return_counts=True)
    beyond = np.cumsum(counts[::-1])[::-1] - counts
    total = int(counts.sum())
    modes = np.flatnonzero((counts > _BORDER_SHARE * total) & (beyond < _BEYOND_SHARE * total))
    if not len(modes):
        return kept
    padding = kept & (values >= levels[modes[0]])
    rest = kept & ~padding
    # Soft edges belong to it, unless it is the paper that thin lines are drawn on.
    inner = rest & ~dilated(padding & ~_specks(padding), round(_EDGE_LINES / 2 * min(values.shape)))
    return np.asarray(inner if inner.sum() > _LEAST_LEFT * values.size else rest)


def _specks(mask: Mask) -> Mask:
    """Return the pixels of a mask that do not belong to any square of 3 x 3 pixels of it."""
    return np.asarray(mask & ~dilated(~dilated(~mask, 1), 1))


def _without_lines(values: Values, kept: Mask) -> Mask:
    """Leave out bright lines of one value from the four sides on, with their inner edge."""
    rest = kept
    for turn in range(4):
        lines = _border_lines(np.rot90(values, turn), np.rot90(kept, turn))
        if lines:
            rest = rest.copy()
            np.rot90(rest, turn)[:lines] = False
    return rest


def _border_lines(values: Values, kept: Mask) -> int:
    """Count the rows at the top that are a bright border."""
    height, width = values.shape
    middle = values[height // 4 : height - height // 4, width // 4 : width - width // 4]
    inside = middle[kept[height // 4 : height - height // 4, width // 4 : width - width // 4]]
    used = np.flatnonzero(kept.any(axis=1))
    if not len(inside) or not len(used):
        return 0
    low, top = np.quantile(inside, (0.02, 0.98))
    spread = top - low
    ordered = np.sort(np.where(kept, values, np.inf)[used], axis=1)
    last = kept[used].sum(axis=1) - 1
    rows = [ordered[np.arange(len(used)), (part * last).astype(int)] for part in (0.1, 0.5, 0.9)]
    narrow = rows[2] - rows[0] <= _LINE_SPREAD * spread
    near = np.abs(rows[1] - rows[1][0]) <= _LINE_DRIFT * spread
    border = narrow & near & (rows[1] > low + spread / 2)
    lines = len(border) if border.all() else int(np.argmin(border))
    if not lines or lines == len(border):
        return 0
    end, most = lines, min(lines + round(_EDGE_LINES * height), len(border) - 1)
    # Nearly all of a line is beyond the tissue where the edge is straight.
    while end < most and rows[0][end] > top:
        end += 1
    end = min(end + max(1, round(_FADE_LINES * height)), len(border) - 1)
    step, half = rows[1][0] - rows[1][end], max(1, lines // 2)
    slope, drift = step / (end - lines + 1), abs(rows[1][half] - rows[1][0]) / half
    return int(used[end]) if step > _LINE_STEP * spread and slope > _EDGE_SLOPES * drift else 0


def _without_components(values: Values, kept: Mask) -> Mask:
    """Leave out bright markers and cells."""
    rest = kept
    rise = values + dilated(np.where(kept, -values, -np.inf), _TO_RING + _RING)
    for _ in range(_ROUNDS):
        before = rest.sum()
        change = _HEIGHT_CHANGES * _usual_change(values, rest)
        low, *thresholds = np.quantile(values[rest], [_LOW, *(1 - share for share in _SHARES)])
        for share, threshold in zip(_SHARES, thresholds, strict=True):
            reach = threshold - low
            beyond = rest & (values > threshold)
            least = max(change, _FLAT_HEIGHT_RANGES * reach)
            if reach > 0 and (rise[beyond] > least).any():
                flat = _FLAT_RANGES[int(share > _FLAT_SHARE)] * reach
                rest = rest & ~_high_components(values, rest, beyond, least, max(change, reach), flat)
        if rest.sum() == before:
            break
    if rest.sum() == kept.sum():
        return kept
    # Rests of soft edges are hardly higher than tissue.
    low, high = np.quantile(values[rest], (_LOW, 1 - _LOW))
    edge = dilated(kept & ~rest, _SHORE) & (values > high + _EDGE_RANGES * (high - low))
    return np.asarray(rest & ~edge)


def _high_components(
    values: Values, kept: Mask, beyond: Mask, least: float, enough: float, flat: float
) -> Mask:
    """Return the components that are higher than the ring around them: by enough, or by least and flat."""
    labels, number = label(dilated(beyond, 1))
    inner = dilated(labels, _TO_RING - 1)
    outer = np.where((inner == 0) & kept, dilated(inner, _RING), 0)
    ring = outer > 0
    around = np.bincount(outer[ring], minlength=number + 1)
    means = np.bincount(outer[ring], values[ring], minlength=number + 1) / np.maximum(around, 1)
    apart = np.bincount(outer[ring], (values - means[outer])[ring] ** 2, minlength=number + 1)
    # A rim of bone is between tissue and air, and is compared with the brighter one.
    height = values - (means + np.sqrt(apart / np.maximum(around, 1)))[labels]
    shore = beyond & dilated((labels == 0) & kept, _SHORE)

    def most(pixels: Mask, which: Mask) -> Mask:
        part = np.bincount(labels[pixels & which], minlength=number + 1)
        return np.asarray(2 * part > np.bincount(labels[pixels], minlength=number + 1))

    tops = np.full(number + 1, -np.inf)
    np.maximum.at(tops, labels[beyond], values[beyond])
    level = most(beyond, values >= tops[labels] - flat)
    # Grain above the threshold is no component, though its pixels are near each other.
    core = (labels > 0) & ~dilated(labels == 0, 1)
    filled = np.bincount(labels[core & beyond], minlength=number + 1)
    solid = filled > _SOLID * np.bincount(labels[core], minlength=number + 1)
    chosen = (around > 0) & solid & (most(shore, height > enough) | (level & most(shore, height > least)))
    chosen[0] = False
    return np.asarray(chosen[labels])


def _usual_change(values: Values, kept: Mask) -> float:
    """Return what most of a film changes at most over the distance of a ring."""
    step = _TO_RING + _RING
    changes = []
    for turned, shown in ((values, kept), (values.T, kept.T)):
        both = shown[step:] & shown[:-step]
        changes.append(np.abs(turned[step:] - turned[:-step])[both])
    joined = np.concatenate(changes)
    return float(np.quantile(joined, _CHANGES_QUANTILE)) if len(joined) else 0.0


def _spread(values: Values) -> float:
    low, high = np.quantile(values, (0.05, 0.95))
    return float(high - low)


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
    if not len(starts):
        return np.zeros(mask.shape, np.int64), 0
    ids = components(len(starts), upper, lower)
    run = np.cumsum(flat == 1)
    labels = np.where(padded.ravel() > 0, (ids + 1)[run - 1], 0)
    return labels.reshape(height, line)[:, :width], int(ids.max()) + 1


def components(count: int, one: Labels, other: Labels) -> Labels:
    """Number the components of a graph of so many nodes from 0, by the two ends of its edges."""
    roots = np.arange(count)
    while (apart := roots[one] != roots[other]).any():
        first, second = roots[one[apart]], roots[other[apart]]
        np.minimum.at(roots, np.maximum(first, second), np.minimum(first, second))
        while ((jumped := roots[roots]) != roots).any():
            roots = jumped
    return np.unique(roots, return_inverse=True)[1].astype(np.int64)
