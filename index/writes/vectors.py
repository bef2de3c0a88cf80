"""Vectors of images and texts in a generation: which lack one, and the encoder that makes them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from PIL import Image
from sqlalchemy import Row, Select, exists, func, insert, select
from sqlalchemy.orm import Session

from index.catalogue.collections import Generation, Target, get_generation, next_sequence
from index.catalogue.lookup import rows_among
from index.catalogue.tables import EmbeddingRow, ImageRow, TextEmbeddingRow, TextRow
from index.errors import GenerationError
from index.home import Home
from index.scoring import TextEncoder
from index.vectors.protocol import Vectors, encode_vectors
from training.common.progress import progress_bar
from training.models.bundle import BundleInfo
from training.models.image_input import Pixels

_TEXTS_AT_ONCE: Final = 1024


class MissingImage(NamedTuple):
    """An image without a vector in a generation; its file is in the store under `sha256`."""

    key: int
    id: str
    sha256: str


def images_without_vectors(
    session: Session, generation: Generation, *, after: int = 0, limit: int
) -> list[MissingImage]:
    """Return images of a collection that lack a vector in a generation, in order of key, behind a key."""
    query = _lacking_images(generation).where(ImageRow.id > after).order_by(ImageRow.id).limit(limit)
    return list(map(MissingImage._make, session.execute(query)))


def count_lacking(session: Session, generation: Generation, target: Target = "images") -> int:
    """Return how many images, or texts, of the collection have no vector in a generation."""
    lacking = _lacking_images(generation) if target == "images" else _lacking_texts(generation)
    counted = lacking.with_only_columns(func.count(), maintain_column_froms=True)
    return session.execute(counted).scalar_one()


def still_missing(
    session: Session, generation: Generation, images: Sequence[MissingImage]
) -> set[MissingImage]:
    """Return those of some images that are there with the same file, and lack a vector in a generation."""
    keys = [image.key for image in images]
    rows = rows_among(session, _lacking_images(generation), ImageRow.id, keys)
    return set(map(MissingImage._make, rows)).intersection(images)


def add_missing_images(
    session: Session,
    generation: Generation,
    sequence: int,
    images: Sequence[MissingImage],
    vectors: Sequence[bytes],
) -> int:
    """Give images their vectors in a generation, and return how many took theirs.

    Images that were removed, have another file by now or have a vector already are skipped.
    """
    missing = still_missing(session, generation, images)
    rows: list[dict[str, Any]] = [
        {"generation_id": generation.id, "image_id": image.key, "sequence": sequence, "vector": vector}
        for image, vector in zip(images, vectors, strict=True)
        if image in missing
    ]
    if rows:
        session.execute(insert(EmbeddingRow), rows)
    return len(rows)


def _lacking_images(generation: Generation) -> Select[int, str, str]:
    has = exists().where(EmbeddingRow.generation_id == generation.id, EmbeddingRow.image_id == ImageRow.id)
    images = select(ImageRow.id, ImageRow.external_id, ImageRow.sha256)
    return images.where(ImageRow.collection_id == generation.collection_id, ~has)


def add_text_vectors(
    session: Session, generation: Generation, sequence: int, vectors: Mapping[int, Mapping[str, bytes]]
) -> None:
    """Give the texts of images, by the keys of these, the vectors that they lack in a generation."""
    rows: list[dict[str, Any]] = []
    for key, image, text in rows_among(session, _lacking_texts(generation), TextRow.image_id, vectors.keys()):
        if text in vectors[image]:
            row = {"generation_id": generation.id, "text_id": key, "sequence": sequence}
            rows.append(row | {"vector": vectors[image][text]})
    if rows:
        session.execute(insert(TextEmbeddingRow), rows)


def texts_without_vectors(
    session: Session, generation: Generation, *, after: int, limit: int
) -> Sequence[Row[int, int, str]]:
    """Return texts of a collection that lack a vector in a generation, by `key` and behind one."""
    query = _lacking_texts(generation).where(TextRow.id > after).order_by(TextRow.id).limit(limit)
    return session.execute(query).all()


def _lacking_texts(generation: Generation) -> Select[int, int, str]:
    has = exists().where(
        TextEmbeddingRow.generation_id == generation.id, TextEmbeddingRow.text_id == TextRow.id
    )
    texts = select(TextRow.id.label("key"), TextRow.image_id.label("image"), TextRow.text)
    images = texts.join(ImageRow, ImageRow.id == TextRow.image_id)
    return images.where(ImageRow.collection_id == generation.collection_id, ~has)


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
        # Whether texts have vectors at all.
        self.reads_texts = "text" in encoder.modalities
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
    generation, after = embedder.generation, 0
    with home.catalogue.read() as session:
        lacking = count_lacking(session, generation, "texts")
    if not lacking:
        return
    with progress_bar(f"Embedding texts of {generation.collection}", lacking, shown=shown) as bar:
        while True:
            with home.catalogue.read() as session:
                texts = texts_without_vectors(session, generation, after=after, limit=_TEXTS_AT_ONCE)
            if not texts:
                return
            embeddings = embedder.texts([item.text for item in texts])
            with home.catalogue.write() as session:
                sequence = next_sequence(session, generation.collection_id)
                get_generation(session, generation.id)
                # Texts that were removed or changed meanwhile are skipped.
                vectors = {item.image: embeddings for item in texts}
                add_text_vectors(session, generation, sequence, vectors)
            bar.advance(len(texts))
            after = texts[-1].key
