"""Embeds the images and texts of a generation by a checked encoder."""

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
from PIL import Image

from index.catalogue.collections import Generation, get_generation, next_sequence
from index.errors import GenerationError
from index.home import Home
from index.scoring import TextEncoder
from index.vectors.codec import encode_vectors
from index.vectors.protocol import Vectors
from index.writes.texts import (
    TextWithoutVector,
    add_missing_vectors,
    count_texts_without_vectors,
    texts_without_vectors,
)
from training.common.progress import progress_bar
from training.models.bundle import BundleInfo
from training.models.inputs.images import Pixels

_TEXTS_AT_ONCE: Final = 1024


class ImageEncoder(TextEncoder, Protocol):
    """Interface of an encoder for ingest; `training.models.encoder.Encoder` has it."""

    @property
    def info(self) -> BundleInfo | None:
        """The bundle it was loaded from."""

    @property
    def min_image_side(self) -> int | None:
        """Pixels that both sides of a decoded image must keep; None: full resolution."""

    def prepare_image(self, image: Image.Image) -> Pixels:
        """Return a decoded image as (3, S, S)."""

    def embed_images(self, images: Pixels) -> Vectors:
        """Return vectors (B, D) of length one for prepared images (B, 3, S, S)."""


class Embedder:
    """An encoder and the generation that its vectors go to.

    Raises:
        GenerationError: The encoder is not of the bundle that the generation is made with.
    """

    def __init__(self, generation: Generation, encoder: ImageEncoder) -> None:
        digest = None if encoder.info is None else encoder.info.digest
        if digest != generation.digest:
            raise GenerationError(
                f"Generation {generation.id} is made with bundle {generation.digest[:12]}, and the encoder "
                f"comes from {'none' if digest is None else digest[:12]}: give the bundle of the generation."
            )
        self.generation = generation
        self._encoder = encoder
        # Hashes, as the texts themselves may be whole reports of a million images.
        self._truncated: set[int] = set()

    def images(self, pixels: Sequence[Pixels]) -> list[bytes]:
        """Embed prepared images."""
        return self._encoded(self._encoder.embed_images(np.stack(pixels))) if pixels else []

    def texts(self, texts: Sequence[str]) -> dict[str, bytes]:
        """Embed texts, each once; none where the bundle has no text encoder."""
        different = list(dict.fromkeys(texts))
        if not different or not self.reads_texts:
            return {}
        embedded = self._encoder.embed_texts(different)
        cuts = zip(different, embedded.truncations, strict=True)
        self._truncated.update(hash(text) for text, cut in cuts if cut is not None)
        return dict(zip(different, self._encoded(embedded.vectors), strict=True))

    @property
    def truncated(self) -> int:
        """Number of different texts so far that are longer than the encoder reads."""
        return len(self._truncated)

    @property
    def reads_texts(self) -> bool:
        """Whether texts have vectors at all."""
        return "text" in self._encoder.modalities

    def _encoded(self, vectors: Vectors) -> list[bytes]:
        if vectors.shape[1:] != (self.generation.dim,) or not np.isfinite(vectors).all():
            raise GenerationError(
                f"The bundle {self.generation.model!r} gives vectors that are not {self.generation.dim} "
                "finite numbers: train it again."
            )
        return encode_vectors(vectors)


def embed_missing_texts(home: Home, embedder: Embedder, *, shown: bool) -> None:
    """Embed the texts that have no vector in the generation, such as those of an older catalogue."""
    if not embedder.reads_texts:
        return
    generation = embedder.generation
    with home.catalogue.read() as session:
        lacking = count_texts_without_vectors(session, generation)
    if not lacking:
        return
    with progress_bar(f"Embedding texts of {generation.collection}", lacking, shown=shown) as bar:
        after = 0
        while texts := _texts_after(home, generation, after):
            found = embedder.texts([item.text for item in texts])
            with home.catalogue.write() as session:
                vectors = {item.key: found[item.text] for item in texts}
                sequence = next_sequence(session, generation.collection_id)
                get_generation(session, generation.id)
                add_missing_vectors(session, generation, sequence, vectors)
            bar.advance(len(texts))
            after = texts[-1].key


def _texts_after(home: Home, generation: Generation, after: int) -> list[TextWithoutVector]:
    with home.catalogue.read() as session:
        return texts_without_vectors(session, generation, after=after, limit=_TEXTS_AT_ONCE)
