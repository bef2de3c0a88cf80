"""Vectors of texts, whichever runtime has computed them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.models.inputs.texts import Truncation


@dataclass(frozen=True, slots=True)
class TextEmbeddings:
    """Vectors (B, D) float32 of texts.

    Attributes:
        vectors: The vectors.
        truncations: How each text was cut; None: it was not.
        tokens: Number of tokens of each text that were embedded, special ones included.
    """

    vectors: NDArray[np.float32]
    truncations: tuple[Truncation | None, ...]
    tokens: tuple[int, ...]
