"""Shortcuts of a split that is embedded as it is: each image has one id, and its texts share it."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from torch import Tensor

from training.shortcuts.config import ShortcutConfig
from training.shortcuts.shortcuts import Shortcuts, with_digits

# Not the seed of any run, so that models are measured on handwriting that they have not seen.
_SEED: Final = 2**40 + 1
_EPOCH: Final = 0


class FixedShortcuts:
    """Adds to each row of a split the same id every time."""

    def __init__(self, config: ShortcutConfig, images: int) -> None:
        self._shortcuts = Shortcuts(config, _SEED, images)
        self._overlay = self._shortcuts.overlay()

    def mark_images(self, images: Tensor, rows: Sequence[int]) -> Tensor:
        """Images (B, 3, S, S) of these rows with their digits."""
        places = np.array(rows, dtype=np.int64)
        glyphs = self._shortcuts.glyphs(_EPOCH, places, self._shortcuts.ids(_EPOCH, places))
        return images if self._overlay is None or glyphs is None else self._overlay(images, glyphs)

    def mark_texts(self, texts: Sequence[str], row: int) -> list[str]:
        """The texts of a row with its digits."""
        if "text" not in self._shortcuts.config.modalities:
            return list(texts)
        number = int(self._shortcuts.ids(_EPOCH, np.array([row], dtype=np.int64))[0])
        return [with_digits(text, number) for text in texts]
