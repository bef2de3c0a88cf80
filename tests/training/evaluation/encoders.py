"""An encoder without weights: the mean colour of an image, and the colours that a text names."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from training.common.errors import MissingModalityError
from training.models.config import Modality
from training.models.image_input import Pixels
from training.models.text_input import TextEmbeddings, Truncation

COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255), "white": (255, 255, 255)}


class ColourEncoder:
    """Vectors (B, 3); texts of more than `max_words` words are cut. Counts what it was asked."""

    dim = 3
    modalities: frozenset[Modality] = frozenset(["image", "text"])
    blades = 1
    unsigned = False
    min_image_side = None

    def __init__(self, max_words: int = 50) -> None:
        self.max_words = max_words
        self.batches: list[int] = []
        self.texts: list[str] = []

    def prepare_image(self, image: Image.Image) -> Pixels:
        return np.array(image.resize((2, 2))).transpose(2, 0, 1)

    def embed_images(self, images: Pixels) -> NDArray[np.float32]:
        self.batches.append(len(images))
        return _unit(images.mean(axis=(2, 3), dtype=np.float32) + 1)

    def embed_texts(self, texts: Sequence[str]) -> TextEmbeddings:
        self.texts += texts
        kept = [text.split()[: self.max_words] for text in texts]
        vectors = [np.sum([COLOURS.get(word, (0, 0, 0)) for word in words], axis=0) + 1 for words in kept]
        counts = [len(text.split()) for text in texts]
        cut = tuple(
            None if len(words) == count else Truncation(count, len(words), " ".join(words))
            for words, count in zip(kept, counts, strict=True)
        )
        return TextEmbeddings(_unit(np.array(vectors, dtype=np.float32)), cut, tuple(map(len, kept)))


class BlindToTexts(ColourEncoder):
    """An encoder of images alone."""

    modalities = frozenset({"image"})

    def embed_texts(self, texts: Sequence[str]) -> TextEmbeddings:
        raise MissingModalityError("text")


class FlippingEncoder(ColourEncoder):
    """Its vectors have no sign: each comes with one drawn by `seed`; None draws none."""

    unsigned = True

    def __init__(self, seed: int | None) -> None:
        super().__init__()
        self._random = None if seed is None else np.random.default_rng(seed)

    def embed_images(self, images: Pixels) -> NDArray[np.float32]:
        return self._flipped(super().embed_images(images))

    def embed_texts(self, texts: Sequence[str]) -> TextEmbeddings:
        embedded = super().embed_texts(texts)
        return replace(embedded, vectors=self._flipped(embedded.vectors))

    def _flipped(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        if self._random is None:
            return vectors
        flips = self._random.random(len(vectors)) < 0.5
        vectors[flips] *= -1
        return vectors


class BladeEncoder(ColourEncoder):
    """The colour and one more dimension span a 2-blade; a vector (B, 8) is its basis."""

    dim = 8
    blades = 2

    def embed_images(self, images: Pixels) -> NDArray[np.float32]:
        return _planes(super().embed_images(images))

    def embed_texts(self, texts: Sequence[str]) -> TextEmbeddings:
        embedded = super().embed_texts(texts)
        return replace(embedded, vectors=_planes(embedded.vectors))


def _planes(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    bases = np.zeros((len(vectors), 2, 4), dtype=np.float32)
    bases[:, 0, :3] = vectors
    bases[:, 1, 3] = 1
    return bases.reshape(len(vectors), -1)


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors
