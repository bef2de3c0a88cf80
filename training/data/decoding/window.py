"""The grey levels of images with more than 8 bits: which of the stored values become black and white."""

from dataclasses import dataclass
from math import inf, isfinite
from typing import Final

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
Counts = NDArray[np.int64]

_LOW_SHARE: Final = 0.005
_HIGH_SHARE: Final = 0.995
# One value over this share of all pixels, with nearly nothing beyond it, is a border or padding.
_BORDER_SHARE: Final = 0.05
_BEYOND_SHARE: Final = 0.005
# Label masks and drawings: percentiles would merge their values.
_FEW_VALUES: Final = 64
# A marker, or cells that saturate: the last value, many times as frequent as those before it.
_SPIKE_SHARE: Final = 0.0005
_SPIKE_RATIO: Final = 8
_SPIKE_NEIGHBOURS: Final = 16
# A marker with noise: few pixels far from all others and near each other.
_CLUSTER_SHARE: Final = 0.05
# A marker with soft edges: a tail beyond the fence, of which many pixels have nearly the largest value.
_MARKER_SHARES: Final = (0.12, 0.05)
_FENCE_SPREADS: Final = 0.5
# Bins beyond the fence, and the most pixels of an edge in one, as a multiple of the mean.
_EDGE_BINS: Final = 32
_EDGE_RATIO: Final = 8
_PLATEAU: Final = 1 / 16
_PLATEAU_SHARE: Final = 0.1
# Below this share of all values, the spread may be the noise of a background, and the tail the picture.
_LEAST_SPREAD: Final = 1 / 200
# A border with noise: a narrow band with nearly nothing between it and the rest.
_BINS: Final = 128
_BAND_BINS: Final = 4
_EMPTY_BINS: Final = 4
_EMPTY_SHARE: Final = 0.01
_BAND_SPREADS: Final = 1 / 16
_GAP_SPREADS: Final = 0.5
_GAP_STEPS: Final = 16
_GAP_DEVIATIONS: Final = 8
_MOST_GAPS: Final = 8
_ROUNDS: Final = 4


@dataclass(frozen=True, slots=True)
class Window:
    """A range of stored values that is spread over all grey levels; values beyond it are clipped.

    Attributes:
        centre: Stored value that becomes middle grey.
        width: Distance of the values that become black and white, in stored values.

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
    """Return the values that become black and white: the percentiles 0.5 and 99.5 of the picture itself.

    Borders and padding, markers, and cells that are dead or saturated do not count: a film gives the same
    grey levels with and without them. An image of few values keeps them all.

    Args:
        sample: Finite values, at most a million of them, drawn from all over the image.
    """
    found, numbers = np.unique(sample, return_counts=True)
    values, counts = found.astype(np.float64), numbers.astype(np.int64)
    if not len(values):
        return 0.0, 0.0
    few = len(values) <= _FEW_VALUES
    if not few:
        values, counts = _without_border(values, counts, len(sample))
        values, counts = _mirrored(*_without_border(*_mirrored(values, counts), len(sample)))
    for _ in range(_ROUNDS):
        before = len(values)
        values, counts = _without_artefact(values, counts, few=few)
        values, counts = _mirrored(*_without_artefact(*_mirrored(values, counts), few=few))
        if not few:
            for remove in (_without_soft_marker, _without_band):
                values, counts = remove(values, counts)
                values, counts = _mirrored(*remove(*_mirrored(values, counts)))
        if len(values) == before:
            break
    low, high = float(values[0]), float(values[-1])
    if few:
        return low, high
    inner = _quantiles(values, counts, (_LOW_SHARE, _HIGH_SHARE))
    return inner if inner[0] < inner[1] else (low, high)


def _mirrored(values: Values, counts: Counts) -> tuple[Values, Counts]:
    return -values[::-1], counts[::-1]


def _without_border(values: Values, counts: Counts, total: int) -> tuple[Values, Counts]:
    """Leave out the mode at the upper end, and what little lies beyond it."""
    beyond = np.cumsum(counts[::-1])[::-1] - counts
    borders = np.flatnonzero((counts > _BORDER_SHARE * total) & (beyond < _BEYOND_SHARE * total))
    end = int(borders[0]) if len(borders) else len(values)
    return (values[:end], counts[:end]) if end > 1 else (values, counts)


def _without_artefact(values: Values, counts: Counts, *, few: bool) -> tuple[Values, Counts]:
    """Leave out one marker or one group of saturated cells at the upper end, if there is one."""
    total = int(counts.sum())
    if not few and len(values) > _SPIKE_NEIGHBOURS:
        usual = float(np.median(counts[-1 - _SPIKE_NEIGHBOURS : -1]))
        if _SPIKE_SHARE * total <= counts[-1] <= _CLUSTER_SHARE * total and counts[-1] > _SPIKE_RATIO * usual:
            return values[:-1], counts[:-1]
    share = np.cumsum(counts) / total
    first, tail = (int(np.searchsorted(share, part)) for part in (_CLUSTER_SHARE, 1 - _CLUSTER_SHARE))
    with np.errstate(over="ignore"):
        spread = float(values[tail] - values[first])
        steps = np.diff(values)
    if not spread:
        return values, counts
    wide = max(_GAP_SPREADS * spread, _GAP_STEPS * float(np.median(steps[:tail])))
    gaps = tail + np.flatnonzero(steps[tail:] >= wide)
    for gap in gaps[::-1][:_MOST_GAPS].tolist():
        cluster = values[gap + 1 :]
        if _deviation(cluster, counts[gap + 1 :]) <= steps[gap] / _GAP_DEVIATIONS:
            return values[: gap + 1], counts[: gap + 1]
    return values, counts


def _without_soft_marker(values: Values, counts: Counts) -> tuple[Values, Counts]:
    """Leave out a marker at the upper end whose edges reach down to the picture."""
    for share in _MARKER_SHARES:
        first, last = _quantiles(values, counts, (share, 1 - share))
        with np.errstate(over="ignore"):
            spread, whole = last - first, float(values[-1] - values[0])
            fence = last + _FENCE_SPREADS * spread
        if not spread > _LEAST_SPREAD * whole:
            continue
        end = int(np.searchsorted(values, fence, side="right"))
        tail = int(counts[end:].sum())
        near = values[-1] - _PLATEAU * (values[-1] - fence)
        if counts[np.searchsorted(values, near) :].sum() >= _PLATEAU_SHARE * tail:
            end = _end_of_picture(values, counts, fence, near, spread)
            values, counts = values[:end], counts[:end]
    return values, counts


def _end_of_picture(values: Values, counts: Counts, fence: float, near: float, spread: float) -> int:
    """Find where values beyond the fence become as sparse as the edges of a marker that begins at `near`."""
    if not near - fence > spread / _EDGE_BINS:
        return int(np.searchsorted(values, fence, side="right"))
    steps = np.geomspace(spread / _EDGE_BINS, near - fence, _EDGE_BINS)
    levels = fence + np.concatenate(([0.0], steps))
    places = np.searchsorted(values, levels, side="right")
    beyond = np.diff(np.concatenate(([0], np.cumsum(counts)))[places])
    usual = beyond.sum() / (near - fence)
    sparse = np.flatnonzero(beyond <= _EDGE_RATIO * usual * np.diff(levels))
    return int(places[sparse[0]])


def _without_band(values: Values, counts: Counts) -> tuple[Values, Counts]:
    """Leave out a border with noise at the upper end, apart from the rest."""
    with np.errstate(over="ignore"):
        whole = float(values[-1] - values[0])
    if not (isfinite(whole) and whole):
        return values, counts
    places = np.minimum(((values - values[0]) / whole * _BINS).astype(np.int64), _BINS - 1)
    shares = np.bincount(places, counts, _BINS) / counts.sum()
    for first in range(_BINS - 1, _BINS - 1 - _BAND_BINS, -1):
        empty = shares[first - _EMPTY_BINS : first]
        if shares[first:].sum() > _BORDER_SHARE and empty.sum() < _EMPTY_SHARE:
            start, end = (int(np.searchsorted(places, place)) for place in (first, first - _EMPTY_BINS))
            if counts[:end].sum() < _CLUSTER_SHARE * counts.sum():
                # So few pixels are a marker, and the band is the picture.
                return values, counts
            low, high = _quantiles(values[:end], counts[:end], (_CLUSTER_SHARE, 1 - _CLUSTER_SHARE))
            if values[-1] - values[start] <= _BAND_SPREADS * (high - low):
                return values[:end], counts[:end]
    return values, counts


def _quantiles(values: Values, counts: Counts, parts: tuple[float, float]) -> tuple[float, float]:
    share = np.cumsum(counts) / counts.sum()
    low, high = (float(values[int(np.searchsorted(share, part))]) for part in parts)
    return low, high


def _deviation(values: Values, counts: Counts) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        mean = np.average(values, weights=counts)
        deviation = float(np.sqrt(np.average((values - mean) ** 2, weights=counts)))
    # Floats near the end of their range overflow.
    return deviation if isfinite(deviation) else inf
