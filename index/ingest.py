"""Bring a manifest into a collection: embed what is new or changed, and make it searchable."""

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

import numpy as np
import torch
from PIL import Image
from sqlalchemy.orm import Session
from torch import Tensor

from index.abandoned import remove_abandoned
from index.bundles import install_bundle, register_bundle
from index.engine import SearchEngine
from index.errors import GenerationError
from index.generations import Generation, activate, find_generation, next_sequence, open_generation
from index.image_intake import Intake, Prepared, known_images, read_limited
from index.image_writes import ImageWrite, Outcome, PictureWrite, write_images
from index.loose_files import keep_files, remove_loose
from index.text_writes import (
    TextWithoutVector,
    add_missing_vectors,
    count_texts_without_vectors,
    texts_without_vectors,
)
from index.vectors.codec import encode_vectors
from index.vectors.protocol import Vectors
from training.data.images import ImageLimits
from training.data.manifest import Manifest, Record
from training.data.rejections import Rejection, Rejections
from training.errors import BundleError, DataError, ImageError
from training.models.bundle import BundleInfo
from training.models.encoder import TextEmbeddings
from training.models.features import Modality
from training.progress import progress_bar

_BATCHES_AHEAD: Final = 2
_TEXTS_AT_ONCE: Final = 1024
_Outcome = Prepared | ImageError | None


class ImageEncoder(Protocol):
    """What ingest needs of an encoder; `training.models.encoder.Encoder` is one."""

    @property
    def info(self) -> BundleInfo | None:
        """The bundle it was loaded from."""

    @property
    def modalities(self) -> frozenset[Modality]:
        """What it can embed."""

    def prepare_image(self, image: Image.Image) -> Tensor:
        """Return a decoded image as uint8 (3, S, S)."""

    def embed_images(self, images: Tensor) -> Vectors:
        """Return vectors (B, D) of length one for uint8 images (B, 3, S, S)."""

    def embed_texts(self, texts: Sequence[str]) -> TextEmbeddings:
        """Return vectors (B, D) of length one for texts, if it has a text encoder."""


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What a run did with the records of a manifest.

    Attributes:
        added: New images.
        updated: Images whose file or record changed.
        unchanged: Images that were there already.
        rejected: Images that cannot be used; they were left out.
        embedded: Images that went through the encoder.
        rejections: The rejected images by line, and why.
    """

    added: int
    updated: int
    unchanged: int
    rejected: int
    embedded: int
    rejections: tuple[Rejection, ...]


def ingest_manifest(
    engine: SearchEngine,
    collection: str,
    encoder: ImageEncoder,
    manifest: Manifest,
    *,
    batch_size: int = 64,
    decoders: int = 2,
    max_rejected: float = 0.01,
    limits: ImageLimits | None = None,
    show_progress: bool = True,
) -> IngestReport:
    """Put the images of a manifest into a collection, embedded by a bundle.

    Each batch is one transaction, so a run that was stopped goes on when it is repeated: what is there
    already is not embedded again. With the bundle that the collection is searched with, images can be found
    as soon as their batch is written. With another bundle a new generation is built beside the active one,
    and takes its place in one step once it has every image of the collection. Texts are embedded with their
    images where the bundle has a text encoder, and those that still lack a vector at the end.

    Args:
        engine: Where to put them.
        collection: Its name; made if there is none.
        encoder: Loaded from a bundle.
        manifest: What to put in.
        batch_size: Images a forward pass and a transaction.
        decoders: Threads that read and decode.
        max_rejected: Largest share of images that may be unusable, from 0 to 1.
        limits: What an image may cost.
        show_progress: Show a bar on standard error.

    Raises:
        DataError: The manifest is empty, or too many images cannot be used.
        StaleWriteError: Somebody else wrote an image at the same time; what was embedded stays.
        GenerationError: The new generation lacks images of the collection, or a picture changed that is still
            searched with another bundle. What was embedded stays.
        BundleError: The encoder comes from no bundle, or the bundle cannot be copied.
    """
    if encoder.info is None:
        raise BundleError("Only an encoder loaded from a bundle can index a collection: save it first.")
    if not manifest.records:
        raise DataError(f"The manifest in {manifest.folder} has no images to index.")
    remove_abandoned(itertools.chain(engine.store.unfinished(), engine.bundles_folder.glob(".*.part")))
    info = install_bundle(encoder.info, engine.bundles_folder)
    with engine.catalogue.write() as session:
        generation = open_generation(session, collection, register_bundle(session, info))
    with engine.catalogue.read() as session:
        known = known_images(session, generation)
    intake = Intake(engine.store, known, encoder.prepare_image, limits or ImageLimits())
    embedder = _Embedder(generation, encoder)
    run = _Run(engine, embedder, intake, manifest, Rejections(len(manifest.records), max_rejected))
    with progress_bar(f"Indexing {collection}", len(manifest.records), shown=show_progress) as bar:
        for batch in _batches(intake, manifest, batch_size, decoders):
            run.write(batch)
            bar.advance(len(batch), f"{len(run.rejections):,} left out" if len(run.rejections) else "")
    _embed_other_texts(engine, embedder, shown=show_progress)
    with engine.catalogue.write() as session:
        activated = _activate_when_complete(session, generation)
    if activated or run.embedded:
        engine.save_snapshot(collection)
    remove_loose(engine.catalogue, engine.store)
    return run.report()


class _Embedder:
    """An encoder and the generation that its vectors go to."""

    def __init__(self, generation: Generation, encoder: ImageEncoder) -> None:
        self.generation = generation
        self._encoder = encoder

    def images(self, pixels: Sequence[Tensor]) -> list[bytes]:
        """Embed prepared images."""
        return self._encoded(self._encoder.embed_images(torch.stack(list(pixels)))) if pixels else []

    def texts(self, texts: Sequence[str]) -> dict[str, bytes]:
        """Embed texts, each once; none where the bundle has no text encoder."""
        different = list(dict.fromkeys(texts))
        if not different or not self.reads_texts:
            return {}
        vectors = self._encoded(self._encoder.embed_texts(different).vectors)
        return dict(zip(different, vectors, strict=True))

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


class _Run:
    """Writes batches and counts what they were."""

    def __init__(
        self,
        engine: SearchEngine,
        embedder: _Embedder,
        intake: Intake,
        manifest: Manifest,
        rejections: Rejections,
    ) -> None:
        self.rejections = rejections
        self.embedded = 0
        self._engine = engine
        self._embedder = embedder
        self._intake = intake
        self._manifest = manifest
        self._counts: Counter[Outcome] = Counter()

    def write(self, batch: Sequence[tuple[Record, _Outcome]]) -> None:
        """Embed and commit a batch."""
        for record, outcome in batch:
            if isinstance(outcome, ImageError):
                self.rejections.add(record.line, f"{record.image}: {outcome}")
        prepared = [outcome for _, outcome in batch if isinstance(outcome, Prepared)]
        if prepared:
            writes = self._embed(prepared)
            with self._engine.catalogue.write() as session:
                outcomes = write_images(session, self._embedder.generation, writes)
                keep_files(session, self._engine.store, self._originals(writes))
            self._counts.update(outcomes.values())
        self._counts["unchanged"] += sum(outcome is None for _, outcome in batch)

    def report(self) -> IngestReport:
        """Return what was done so far."""
        return IngestReport(
            added=self._counts["created"],
            updated=self._counts["replaced"],
            unchanged=self._counts["unchanged"],
            rejected=len(self.rejections),
            embedded=self.embedded,
            rejections=self.rejections.items,
        )

    def _embed(self, prepared: Sequence[Prepared]) -> list[ImageWrite]:
        pixels = [item.picture.pixels for item in prepared if item.picture is not None]
        vectors = iter(self._embedder.images(pixels))
        texts = self._embedder.texts([text for item in prepared for text in item.record.texts])
        self.embedded += len(pixels)
        return [make_write(item, vectors, texts) for item in prepared]

    def _originals(self, writes: Sequence[ImageWrite]) -> dict[str, Callable[[], bytes]]:
        return {
            write.picture.sha256: partial(
                read_limited, self._manifest.image_path(write.record), self._intake.limits
            )
            for write in writes
            if write.picture is not None
        }


def make_write(item: Prepared, vectors: Iterator[bytes], texts: Mapping[str, bytes]) -> ImageWrite:
    """Make a write of a prepared record; one with a picture takes the next vector."""
    picture = None
    if item.picture is not None:
        picture = PictureWrite(
            sha256=item.picture.sha256,
            media_type=item.picture.media_type,
            width=item.picture.width,
            height=item.picture.height,
            vector=next(vectors),
        )
    own = {text: texts[text] for text in item.record.texts if text in texts}
    return ImageWrite(item.record, item.record_digest, picture, item.sha256, own)


def _embed_other_texts(engine: SearchEngine, embedder: _Embedder, *, shown: bool) -> None:
    """Embed the texts that have no vector in the generation, such as those of an older catalogue."""
    if not embedder.reads_texts:
        return
    generation = embedder.generation
    with engine.catalogue.read() as session:
        lacking = count_texts_without_vectors(session, generation)
    if not lacking:
        return
    with progress_bar(f"Embedding texts of {generation.collection}", lacking, shown=shown) as bar:
        after = 0
        while texts := _texts_after(engine, generation, after):
            found = embedder.texts([item.text for item in texts])
            with engine.catalogue.write() as session:
                vectors = {item.key: found[item.text] for item in texts}
                sequence = next_sequence(session, generation.collection_id)
                add_missing_vectors(session, generation, sequence, vectors)
            bar.advance(len(texts))
            after = texts[-1].key


def _texts_after(engine: SearchEngine, generation: Generation, after: int) -> list[TextWithoutVector]:
    with engine.catalogue.read() as session:
        return texts_without_vectors(session, generation, after=after, limit=_TEXTS_AT_ONCE)


def _activate_when_complete(session: Session, generation: Generation) -> bool:
    """Make a generation active that is not yet; return whether it was not."""
    active = find_generation(session, generation.collection_id, "active")
    if active is not None and active.id == generation.id:
        return False
    activate(session, generation)
    return True


def _batches(
    intake: Intake, manifest: Manifest, batch_size: int, decoders: int
) -> Iterator[list[tuple[Record, _Outcome]]]:
    """Prepare records in their order, some batches ahead of the encoder."""
    waiting: deque[list[tuple[Record, Future[_Outcome]]]] = deque()
    pool = ThreadPoolExecutor(decoders, thread_name_prefix="intake")
    try:
        for start in range(0, len(manifest.records), batch_size):
            records = manifest.records[start : start + batch_size]
            waiting.append([(r, pool.submit(intake.prepare, r, manifest.image_path(r))) for r in records])
            if len(waiting) > _BATCHES_AHEAD:
                yield [(record, future.result()) for record, future in waiting.popleft()]
        for batch in waiting:
            yield [(record, future.result()) for record, future in batch]
    finally:
        pool.shutdown(cancel_futures=True)
