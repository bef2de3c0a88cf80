"""Scores of all pairs of images and texts by an encoder that compares pairs and not vectors."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from torch import Tensor

from training.evaluation.similarity import Vectors
from training.models.config import PairAttentionConfig
from training.models.inputs.images import Pixels
from training.progress import progress_bar


@runtime_checkable
class PairEncoder(Protocol):
    """Encoder with cross attention over pairs; `training.models.encoder.Encoder` is one."""

    @property
    def pair_attention(self) -> PairAttentionConfig | None:
        """Settings of the attention over a pair; None: the encoder compares vectors."""

    def image_entries(self, images: Pixels) -> list[Tensor]:
        """The regions (K, D) of each of some uint8 images (B, 3, S, S)."""

    def text_entries(self, texts: Sequence[str]) -> list[Tensor]:
        """The words (T_i, D) of each text."""

    def compare(self, images: Sequence[Tensor], texts: Sequence[Tensor]) -> Vectors:
        """Scores (N, M) of the entries of N images and of M texts."""


class PairScorer:
    """Collects the regions and words of a manifest while it is embedded, and compares all pairs."""

    def __init__(self, encoder: PairEncoder, texts: int) -> None:
        self._encoder = encoder
        self._images: list[Tensor] = []
        self._texts: dict[int, Tensor] = {}
        self._count = texts

    @classmethod
    def of(cls, encoder: object, texts: int) -> "PairScorer | None":
        """One for so many texts; None for an encoder that compares vectors, or without a text."""
        if texts and isinstance(encoder, PairEncoder) and encoder.pair_attention is not None:
            return cls(encoder, texts)
        return None

    def add_images(self, images: Pixels) -> None:
        """Keep the regions of the next uint8 images (B, 3, S, S)."""
        self._images += self._encoder.image_entries(images)

    def add_texts(self, rows: Sequence[int], texts: Sequence[str]) -> None:
        """Keep the words of these rows' texts."""
        self._texts.update(zip(rows, self._encoder.text_entries(texts), strict=True))

    def scores(self, batch_size: int, *, show_progress: bool) -> Vectors:
        """(N, M) of all pairs, computed for so many images and texts at once."""
        texts = [self._texts[row] for row in range(self._count)]
        found = np.empty((len(self._images), self._count), dtype=np.float32)
        with progress_bar("comparing", len(self._images), shown=show_progress) as bar:
            for row in range(0, len(self._images), batch_size):
                images = self._images[row : row + batch_size]
                for column in range(0, self._count, batch_size):
                    found[row : row + batch_size, column : column + batch_size] = self._encoder.compare(
                        images, texts[column : column + batch_size]
                    )
                bar.advance(len(images))
        return found
