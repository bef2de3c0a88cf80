"""Vectors of texts, whichever runtime has computed them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.models.inputs.texts import Truncation


@dataclass(frozen=True, slots=True)
class TextEmbeddings:
    """Vectors (B, D) float32 of texts, and how each text was cut; None: it was not."""

    vectors: NDArray[np.float32]
    truncations: tuple[Truncation | None, ...]
