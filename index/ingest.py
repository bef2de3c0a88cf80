"""Bring a manifest into a collection: embed what is new or changed, and make it searchable."""

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import torch
from PIL import Image
from sqlalchemy import and_, select
from sqlalchemy.orm import Session
from torch import Tensor

from index.abandoned import remove_abandoned
from index.bundles import install_bundle, register_bundle
from index.catalogue.tables import EmbeddingRow, ImageRow
from index.engine import SearchEngine
from index.errors import GenerationError
from index.generations import Generation, activate, find_generation, open_generation
from index.image_intake import Intake, KnownImage, Prepared
from index.image_writes import ImageWrite, PictureWrite, WriteCounts, write_images
from index.vectors.codec import encode_vectors
from index.vectors.protocol import Vectors
from training.data.images import ImageLimits
from training.data.manifest import Manifest, Record
from training.data.rejections import Rejection, Rejections
from training.errors import BundleError, DataError, ImageError
from training.models.bundle import BundleInfo
from training.progress import progress_bar

_BATCHES_AHEAD: Final = 2
_Outcome = Prepared | ImageError | None


class ImageEncoder(Protocol):
    """What ingest needs of an encoder; `training.models.encoder.Encoder` is one."""

    @property
    def info(self) -> BundleInfo | None:
        """The bundle it was loaded from."""

    def prepare_image(self, image: Image.Image) -> Tensor:
        """Return a decoded image as uint8 (3, S, S)."""

    def embed_images(self, images: Tensor) -> Vectors:
        """Return vectors (B, D) of length one for uint8 images (B, 3, S, S)."""


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
    and takes its place in one step once it has every image of the collection.

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
        known = _known_images(session, generation)
    intake = Intake(engine.store, known, encoder.prepare_image, limits or ImageLimits())
    run = _Run(engine, generation, encoder, Rejections(len(manifest.records), max_rejected))
    with progress_bar(f"Indexing {collection}", len(manifest.records), shown=show_progress) as bar:
        for batch in _batches(intake, manifest, batch_size, decoders):
            run.write(batch)
            bar.advance(len(batch), f"{len(run.rejections):,} left out" if len(run.rejections) else "")
    with engine.catalogue.write() as session:
        activated = _activate_when_complete(session, generation)
    if activated or run.embedded:
        engine.save_snapshot(collection)
    return run.report()


class _Run:
    """Writes batches and counts what they were."""

    def __init__(
        self, engine: SearchEngine, generation: Generation, encoder: ImageEncoder, rejections: Rejections
    ) -> None:
        self.rejections = rejections
        self.embedded = 0
        self._engine = engine
        self._generation = generation
        self._encoder = encoder
        self._counts = WriteCounts(0, 0, 0)

    def write(self, batch: Sequence[tuple[Record, _Outcome]]) -> None:
        """Embed and commit a batch."""
        for record, outcome in batch:
            if isinstance(outcome, ImageError):
                self.rejections.add(record.line, f"{record.image}: {outcome}")
        prepared = [outcome for _, outcome in batch if isinstance(outcome, Prepared)]
        counts = WriteCounts(0, 0, sum(outcome is None for _, outcome in batch))
        if prepared:
            writes = self._embed(prepared)
            with self._engine.catalogue.write() as session:
                counts += write_images(session, self._generation, writes)
        self._counts += counts

    def report(self) -> IngestReport:
        """Return what was done so far."""
        return IngestReport(
            added=self._counts.added,
            updated=self._counts.updated,
            unchanged=self._counts.same,
            rejected=len(self.rejections),
            embedded=self.embedded,
            rejections=self.rejections.items,
        )

    def _embed(self, prepared: Sequence[Prepared]) -> list[ImageWrite]:
        pixels = [item.picture.pixels for item in prepared if item.picture is not None]
        vectors = iter(self._vectors(pixels))
        self.embedded += len(pixels)
        return [_image_write(item, vectors) for item in prepared]

    def _vectors(self, pixels: Sequence[Tensor]) -> list[bytes]:
        if not pixels:
            return []
        vectors = self._encoder.embed_images(torch.stack(list(pixels)))
        if vectors.shape != (len(pixels), self._generation.dim) or not np.isfinite(vectors).all():
            raise GenerationError(
                f"The bundle {self._generation.model!r} gives vectors that are not {self._generation.dim} "
                "finite numbers: train it again."
            )
        return encode_vectors(vectors)


def _image_write(item: Prepared, vectors: Iterator[bytes]) -> ImageWrite:
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
    return ImageWrite(item.record, item.record_digest, picture)


def _known_images(session: Session, generation: Generation) -> dict[str, KnownImage]:
    ours = and_(EmbeddingRow.image_id == ImageRow.id, EmbeddingRow.generation_id == generation.id)
    query = (
        select(ImageRow.external_id, ImageRow.sha256, ImageRow.record_digest, EmbeddingRow.image_id)
        .outerjoin(EmbeddingRow, ours)
        .where(ImageRow.collection_id == generation.collection_id)
    )
    return {
        external_id: KnownImage(sha256, digest, embedded is not None)
        for external_id, sha256, digest, embedded in session.execute(query)
    }


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
