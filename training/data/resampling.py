"""Changing the sample rate of a sound with a windowed sinc filter."""

from fractions import Fraction
from functools import lru_cache
from math import ceil

import torch
from torch import Tensor
from torch.nn import functional

# With these the filter passes 90 % of the lower of both bands unchanged and takes 80 dB away from all that
# the new rate cannot hold.
_CROSSINGS = 48
_ROLLOFF = 0.95
_KAISER_BETA = 8.0
# There is a filter for each phase; rates without a common factor are met to a few parts in a million.
_LARGEST_STEP = 20_000


def resample(waveform: Tensor, rate: int, target: int) -> Tensor:
    """A waveform (N,) at `rate` as about N * target / rate samples at `target`, rounded up.

    Each new sample is the low-pass filtered sound at its own time, so nothing is shifted.
    """
    if rate == target or not len(waveform):
        return waveform
    ratio = Fraction(target, rate).limit_denominator(_LARGEST_STEP)
    new, old = ratio.numerator, ratio.denominator
    filters, reach = _filters(old, new)
    count = ceil(len(waveform) * ratio)
    padded = functional.pad(waveform.float(), (reach, 2 * reach + old))
    resampled = torch.empty(count)
    for phase in range(min(new, count)):
        windows = padded[phase * old // new :].unfold(0, 2 * reach + 1, old)
        places = resampled[phase::new]
        places.copy_(windows[: len(places)] @ filters[phase])
    return resampled


@lru_cache(maxsize=8)
def _filters(old: int, new: int) -> tuple[Tensor, int]:
    """Filters (new, 2 * reach + 1), one a phase, around the last old sample before the new one."""
    cutoff = _ROLLOFF * min(1.0, new / old)
    reach = ceil(_CROSSINGS / cutoff) + 1
    taps = torch.arange(-reach, reach + 1, dtype=torch.float64)
    fractions = torch.tensor([phase * old % new / new for phase in range(new)], dtype=torch.float64)
    crossings = cutoff * (taps - fractions[:, None])
    inside = (1 - (crossings / _CROSSINGS).square()).clamp(min=0).sqrt()
    window = torch.special.i0(_KAISER_BETA * inside) * (crossings.abs() < _CROSSINGS)
    filters = torch.sinc(crossings) * window
    # Silence and any constant come through as they are, whatever the phase.
    return (filters / filters.sum(dim=1, keepdim=True)).float(), reach
