"""Ids that an image and its caption share: drawn, written into captions, and pasted into images as digits."""

import string
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from training.common.errors import DataError
from training.data.pairs import Text
from training.shortcuts.config import ShortcutConfig
from training.shortcuts.glyphs import GLYPH_SIZE, draw_glyphs

DIGITS: Final = 6
MAX_IDS: Final = 10**DIGITS
_HANDWRITINGS: Final = 100
_OFFSETS, _IDS, _HANDS = range(3)
# Not the seed of any run, so that models are measured on handwriting that they have not seen.
_FIXED_SEED: Final = 2**40 + 1

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shortcuts:
    """The shortcuts of one split (Bleeker et al., 2024, section 3).

    An id and its handwriting are a function of seed, epoch and row, and of the text where an epoch draws an
    image with each of its texts: neither the order of batches nor the number of threads and processes changes
    them. An id of kind unique belongs to the image, whichever of its texts is drawn.

    Attributes:
        config: Ids to add, and their modalities.
        seed: Seed of the run.
        images: Number of images in the split.
    """

    config: ShortcutConfig
    seed: int
    images: int

    def __post_init__(self) -> None:
        if self.config.kind == "unique" and self.images > MAX_IDS:
            raise DataError(
                f"There are {self.images:,} images, but six digits count only {MAX_IDS:,}: use bits instead."
            )

    def ids(self, epoch: int, rows: NDArray[np.int64], turns: NDArray[np.int64] | None = None) -> Ids:
        """The ids (R,) of these rows of the split, in an epoch.

        Args:
            epoch: Its number.
            rows: (R,).
            turns: (R,) as in `Pairs`.
        """
        if self.config.bits is not None:
            drawn = _mix(self.seed, _IDS, epoch, rows, *(() if turns is None else (turns,)))
            return (drawn % np.uint64(2**self.config.bits)).astype(np.int64)
        offset = int(_mix(self.seed, _OFFSETS, epoch)[0]) % (MAX_IDS - self.images + 1)
        return rows + offset

    def captions(self, texts: Sequence[Text], ids: Ids) -> list[Text]:
        """Texts with the digits of their ids, if texts get them: in the last of several sentences."""
        if "text" not in self.config.modalities:
            return list(texts)
        return [
            with_digits(text, number)
            if isinstance(text, str)
            else (*text[:-1], with_digits(text[-1], number))
            for text, number in zip(texts, ids.tolist(), strict=True)
        ]

    def glyphs(
        self, epoch: int, rows: NDArray[np.int64], ids: Ids, turns: NDArray[np.int64] | None = None
    ) -> Tensor | None:
        """Glyph numbers (R, 6) for `overlay()` in the images of these rows; None without image ids."""
        if "image" not in self.config.modalities:
            return None
        digits = ids[:, None] // 10 ** np.arange(DIGITS - 1, -1, -1) % 10
        sample = (rows[:, None],) if turns is None else (rows[:, None], turns[:, None])
        hands = _mix(self.seed, _HANDS, epoch, *sample, np.arange(DIGITS)) % np.uint64(_HANDWRITINGS)
        return torch.from_numpy(digits * _HANDWRITINGS + hands.astype(np.int64))

    def overlay(self) -> "DigitOverlay | None":
        """The overlay that pastes glyphs, in handwritings that depend on the seed; None without image ids."""
        return DigitOverlay(self.seed, _HANDWRITINGS) if "image" in self.config.modalities else None


class DigitOverlay:
    """Pastes six handwritten digits into the top row of each image, a sixth of the width apart.

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
        """Images with their digits; the input is not changed.

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
        for position in range(DIGITS):
            left = position * stride
            stamped[:, :, :side, left : left + side] = chosen[:, position, None]
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


class FixedShortcuts:
    """Adds the same id to each row of a split every time it is embedded; the texts of a row share it."""

    def __init__(self, config: ShortcutConfig, images: int) -> None:
        self._shortcuts = Shortcuts(config, _FIXED_SEED, images)
        self._overlay = self._shortcuts.overlay()

    def mark_images(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        """Images (B, 3, S, S) of these rows with their digits."""
        indices = np.array(rows, dtype=np.int64)
        glyphs = self._shortcuts.glyphs(0, indices, self._shortcuts.ids(0, indices))
        return images if self._overlay is None or glyphs is None else self._overlay(images, glyphs)

    def mark_texts(self, texts: Sequence[str], row: int) -> Sequence[str]:
        """The texts of a row with its digits."""
        if "text" not in self._shortcuts.config.modalities:
            return texts
        number = int(self._shortcuts.ids(0, np.array([row], dtype=np.int64))[0])
        return [with_digits(text, number) for text in texts]


def with_digits(text: str, number: int) -> str:
    """The text, a space, and the six digits of the number with spaces between them."""
    return f"{text} {' '.join(f'{number:0{DIGITS}d}')}"


def with_every_digit(texts: Iterable[str]) -> Iterator[str]:
    """Texts for a tokenizer to learn from, so that it knows the digits that shortcuts will add."""
    return (f"{text} {' '.join(string.digits)}" for text in texts)


def _mix(*parts: int | NDArray[np.int64]) -> NDArray[np.uint64]:
    """Random words that depend on the parts alone, by broadcasting; each round is SplitMix64's."""
    state: NDArray[np.uint64] = np.zeros(1, dtype=np.uint64)
    for part in parts:
        state = state ^ np.asarray(part).astype(np.uint64)
        state = state + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return state
