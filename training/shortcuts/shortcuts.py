"""Ids that an image and its caption share: drawn, written into captions, and turned into glyphs."""

import string
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.common.errors import DataError
from training.data.pairs import Text
from training.shortcuts.config import ShortcutConfig
from training.shortcuts.overlay import DIGITS, DigitOverlay

MAX_IDS: Final = 10**DIGITS
_HANDWRITINGS: Final = 100
_OFFSETS, _IDS, _HANDS = range(3)

Ids = NDArray[np.int64]
Words = NDArray[np.uint64]


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

    def overlay(self) -> DigitOverlay | None:
        """The overlay that pastes glyphs, in handwritings that depend on the seed; None without image ids."""
        return DigitOverlay(self.seed, _HANDWRITINGS) if "image" in self.config.modalities else None


def with_digits(text: str, number: int) -> str:
    """The text, a space, and the six digits of the number with spaces between them."""
    return f"{text} {' '.join(f'{number:0{DIGITS}d}')}"


def with_every_digit(texts: Iterable[str]) -> Iterator[str]:
    """Texts for a tokenizer to learn from, so that it knows the digits that shortcuts will add."""
    return (f"{text} {' '.join(string.digits)}" for text in texts)


def _mix(*parts: int | NDArray[np.int64]) -> Words:
    """Random words that depend on the parts alone, by broadcasting; each round is SplitMix64's."""
    state: Words = np.zeros(1, dtype=np.uint64)
    for part in parts:
        state = state ^ np.asarray(part).astype(np.uint64)
        state = state + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    return state
