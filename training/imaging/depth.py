"""Samples of any depth as 8-bit pixels, in bands of rows so that little is copied at a time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from training.imaging.artefacts import find_picture
from training.imaging.window import Window, find_range, has_few_values, seen_with_data

Samples = NDArray[np.generic]
Grey = NDArray[np.uint8]

_MODES: Final = {(4, False): "CMYK", (1, False): "L", (1, True): "LA", (3, False): "RGB", (3, True): "RGBA"}
# As doubles they fit into a core's cache.
_BAND_PIXELS: Final = 1 << 16
# Pixels of which the smallest and largest values are reported, and those that decide the window.
_SAMPLE: Final = 1 << 20
_PICTURE_PIXELS: Final = 40_000
# Scanners and programs that have 8 bits write them twice, or with eight zeros after them.
_EIGHT_BIT_STEPS: Final = (257, 256)
# Colours of more bits than these may be a film's, or be stored in cells of many more bits than they have.
_BYTE: Final = 255
_UNUSED: Final = 16
# A tone that gives the picture fewer grey levels, or a smaller standard deviation of them, shows nothing.
_FEWEST_LEVELS: Final = 16
_LEAST_DEVIATION: Final = 4


@dataclass(frozen=True, slots=True)
class Tone:
    """The grey levels that a file states: from values to levels from 0 to 1, where NaN stays NaN.

    The window is of the values that become black and white, or nearly so.
    """

    levels: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    window: Window


@dataclass(frozen=True, slots=True)
class DeepImage:
    """An image whose samples have other than 8 bits.

    Attributes:
        colours: 1 for grey, 3 for RGB, 4 for CMYK.
        bands: Yields the top row and the samples (H, width, C) of one band after the other. A channel of
            opacity may follow the colours.
        opaque: Largest value of the opacity; None: there is no such channel.
        full: Value that is white where 0 is black and where no tone shows the picture; colours of more
            than 8 bits are windowed nevertheless where they are all grey, or none is over a sixteenth of it.
            None: samples are windowed.
        inverted: Whether the smallest value is white.
        stated: Window that the file states.
        tones: Grey levels that the file states instead: the first that shows the picture counts.
        padded: Whether NaN is padding, which is black even where the smallest value is white.
    """

    width: int
    height: int
    colours: int
    bands: Callable[[], Iterator[tuple[int, Samples]]]
    opaque: float | None = None
    full: float | None = None
    inverted: bool = False
    stated: Window | None = None
    tones: tuple[Tone, ...] = ()
    padded: bool = False


@dataclass(frozen=True, slots=True)
class Levels:
    """The stored values of an image whose samples have more than 8 bits.

    Attributes:
        smallest, largest: Range of the pixels that were looked at.
        low, high: Values that become black and white where no window is given.
        stated: Window that the file states.
        unfit: Whether the file states grey levels that show nothing of the picture, and are not taken.
    """

    smallest: float
    largest: float
    low: float
    high: float
    stated: Window | None = None
    unfit: bool = False


def to_eight_bits(image: DeepImage, window: Window | None = None) -> tuple[Image.Image, Levels | None]:
    """Return the image as L, LA, RGB, RGBA or CMYK, and its levels if these made the window.

    Args:
        image: The image.
        window: Values to be spread over all grey levels; None: as the file states it, else as `find_range`
            finds it. An image of 16 bits that was made from 8 bits gives those.
    """
    levels, tone = None, None
    if window is not None:
        low, high = window.low, window.high
    elif image.full is not None and not image.tones and (image.colours != 3 or image.full <= _BYTE):
        low, high = 0.0, image.full
    else:
        levels, tone = _find_levels(image)
        low, high = levels.low, levels.high
    scaled = _scale(image, low, high) if tone is None else _toned(image, tone)
    mode = _MODES[image.colours, image.opaque is not None]
    result = Image.new(mode, (image.width, image.height))
    for top, samples in image.bands():
        colours = scaled(samples[..., : image.colours])
        opacity = _opacity(image, samples)
        if opacity is not None:
            colours = np.concatenate((colours, opacity[..., None]), axis=-1)
        band = Image.frombytes(mode, (image.width, len(colours)), colours.tobytes())
        result.paste(band, (0, top))
    return result, levels


def band_rows(width: int, height: int) -> Iterator[tuple[int, int]]:
    """Yield the first row of each band and the row after its last."""
    rows = max(1, _BAND_PIXELS // width)
    for top in range(0, height, rows):
        yield top, min(top + rows, height)


def split_bands(samples: Samples) -> Iterator[tuple[int, Samples]]:
    """Yield top row and samples of the bands of an image (H, W, C)."""
    for top, bottom in band_rows(samples.shape[1], samples.shape[0]):
        yield top, samples[top:bottom]


def _toned(image: DeepImage, tone: Tone) -> Callable[[Samples], Grey]:
    """Return the function from samples to the grey levels that a file states."""

    def scaled(samples: Samples) -> Grey:
        levels = tone.levels(samples.astype(np.float64))
        return np.rint(np.nan_to_num((1 - levels if image.inverted else levels) * 255)).astype(np.uint8)

    return scaled


def _scale(image: DeepImage, low: float, high: float) -> Callable[[Samples], Grey]:
    """Return the function from samples to grey levels: `low` is black, `high` is white."""
    factor = 255.0 / (high - low) if high > low else 0.0
    # NaN is the end of the window that is black.
    black = high if image.inverted and image.padded else low

    def scaled(samples: Samples) -> Grey:
        flat = samples.reshape(-1)
        grey = np.empty(flat.shape, dtype=np.uint8)
        # A row may be as wide as the image has pixels.
        for start in range(0, len(flat), _BAND_PIXELS):
            part = slice(start, start + _BAND_PIXELS)
            values = np.nan_to_num(flat[part].astype(np.float64), nan=black, posinf=high, neginf=low)
            values = (values.clip(low, high) - low) * factor
            grey[part] = np.rint(255.0 * (high > low) - values if image.inverted else values)
        return grey.reshape(samples.shape)

    table = scaled(np.arange(1 << 16))

    def looked_up(samples: Samples) -> Grey:
        unsigned = samples.dtype.kind == "u" and samples.dtype.itemsize <= 2
        return table[samples] if unsigned else scaled(samples)

    return looked_up


def _opacity(image: DeepImage, samples: Samples) -> Grey | None:
    if image.opaque is None:
        return None
    values = samples[..., image.colours].astype(np.float64) * (255.0 / image.opaque)
    levels: Grey = np.rint(np.nan_to_num(values).clip(0, 255)).astype(np.uint8)
    return levels


def _find_levels(image: DeepImage) -> tuple[Levels, Tone | None]:
    """Return the levels, and the tone of the file that makes them; None: they are a window."""
    pixels, seen, step = _sample(image)
    seen = seen_with_data(pixels, seen)
    values = pixels[seen]
    smallest, largest = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    if step:
        return Levels(smallest, largest, 0.0, 255.0 * step), None
    shown = _picture(pixels, seen)
    for tone in image.tones:
        if smallest == largest or _shows(tone, shown):
            return Levels(smallest, largest, tone.window.low, tone.window.high, tone.window), tone
    unfit = bool(image.tones)
    stated = image.stated
    # A window as wide as the values is a statistic of the file, and may be that of a marker.
    if stated and smallest < stated.low and stated.high < largest:
        return Levels(smallest, largest, stated.low, stated.high, stated), None
    if image.full is not None and (image.colours == 1 or _are_colours(values, image.full)):
        return Levels(smallest, largest, 0.0, image.full, unfit=unfit), None
    return Levels(smallest, largest, *find_range(shown), stated, unfit), None


def _are_colours(values: Samples, full: float) -> bool:
    """Whether colours (N, 3) are those of a photograph: not all grey, nor all nearly black."""
    return bool((values != values[:, :1]).any()) and float(values.max()) > full / _UNUSED


def _shows(tone: Tone, shown: Samples) -> bool:
    """Whether a tone shows a picture, by its values without those of artefacts."""
    # A few outliers would be levels of their own.
    grey = shown.astype(np.float64).clip(*find_range(shown))
    levels = np.rint(np.nan_to_num(tone.levels(grey)) * 255)
    if has_few_values(shown):
        return len(np.unique(levels)) > 1 and tone.window.low < grey.max() and grey.min() < tone.window.high
    return len(np.unique(levels)) >= _FEWEST_LEVELS and float(levels.std()) >= _LEAST_DEVIATION


def _picture(pixels: Samples, seen: NDArray[np.bool_]) -> Samples:
    """Return the values that can be seen without those of artefacts: all of them where they are few."""
    values = pixels[seen]
    if not values.size or has_few_values(values):
        return values
    down, across = _strides(len(seen), seen.shape[1], _PICTURE_PIXELS)
    pixels, seen = pixels[::down, ::across], seen[::down, ::across]
    # The few pixels that can be seen may all be between those that are looked at.
    if not seen.any():
        return values
    # The largest floats have no differences.
    scale = max(abs(float(values.min())), abs(float(values.max())))
    del values
    grey = np.where(seen[..., None], pixels, 0).astype(np.float64) / scale
    return np.asarray(pixels[find_picture(grey.mean(axis=-1), seen)])


def _strides(height: int, width: int, most: int) -> tuple[int, int]:
    """Return the distances of rows and of columns so that no more than a number of pixels are looked at."""
    down = across = 1
    while (rows := ceil(height / down)) * (columns := ceil(width / across)) > most:
        down, across = (down + 1, across) if rows > columns else (down, across + 1)
    return down, across


def _sample(image: DeepImage) -> tuple[Samples, NDArray[np.bool_], int]:
    """Return colours of pixels on a grid, which of them can be seen, and the step of 8-bit values.

    The step is 0 unless all values of the image are multiples of it that 8 bits had.
    """
    down, across = _strides(image.height, image.width, _SAMPLE)
    parts, seen = [], []
    steps: tuple[int, ...] = _EIGHT_BIT_STEPS
    for top, samples in image.bands():
        deep = samples.dtype.kind == "u" and samples.dtype.itemsize == 2
        steps = tuple(step for step in steps if deep and not (samples[..., : image.colours] % step).any())
        drawn = samples[-top % down :: down, ::across]
        opacity = _opacity(image, drawn)
        colours = drawn[..., : image.colours]
        parts.append(colours)
        clear = np.zeros(colours.shape[:2], bool) if opacity is None else opacity == 0
        seen.append(np.isfinite(colours).all(axis=-1) & ~clear)
    return np.concatenate(parts), np.concatenate(seen), steps[0] if steps else 0
