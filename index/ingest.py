"""Bring a manifest into a collection: embed what is new or changed, and make it searchable."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sqlalchemy.orm import Session

from index.abandoned import remove_abandoned
from index.activation import activate
from index.ahead import prepared_ahead
from index.bundles import installed_bundle, register_bundle
from index.embedder import Embedder, ImageEncoder, embed_missing_texts
from index.engine import SearchEngine
from index.generations import Generation, find_generation, open_generation
from index.image_intake import Intake, Prepared, known_images, read_limited
from index.image_writes import ImageWrite, Outcome, PictureWrite, write_images
from index.loose_files import keep_files, remove_loose
from training.data.images import ImageLimits
from training.data.manifest import Manifest, Record
from training.data.rejections import Rejections
from training.errors import BundleError, DataError, ImageError
from training.progress import progress_bar

_Outcome = Prepared | ImageError | None


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What a run did with the records of a manifest.

    Attributes:
        added: New images.
        updated: Images whose file or record changed.
        unchanged: Images that were there already.
        embedded: Images that went through the encoder.
        rejections: The images that cannot be used and were left out.
    """

    added: int
    updated: int
    unchanged: int
    embedded: int
    rejections: Rejections


def ingest_manifest(
    engine: SearchEngine,
    collection: str,
    encoder: ImageEncoder,
    manifest: Manifest,
    *,
    batch_size: int = 64,
    decoders: int = 2,
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
        manifest: What to put in; its rejections say how much may be left out, lines and images together.
        batch_size: Images a forward pass and a transaction.
        decoders: Threads that read and decode.
        limits: What an image may cost.
        show_progress: Show a bar on standard error.

    Raises:
        DataError: The manifest is empty, or too much of it cannot be used.
        StaleWriteError: Somebody else wrote an image at the same time; what was embedded stays.
        GenerationError: The new generation lacks images of the collection, or a picture changed that is still
            searched with another bundle. What was embedded stays.
        BundleError: The encoder comes from no bundle, or the bundle cannot be copied.
        StoreError: The folder of bundles cannot be made or opened.
    """
    if encoder.info is None:
        raise BundleError("Only an encoder loaded from a bundle can index a collection: save it first.")
    if not manifest.records:
        raise DataError(f"The manifest in {manifest.folder} has no images to index.")
    remove_abandoned(itertools.chain(engine.store.unfinished(), engine.bundles_folder.glob(".*.part")))
    with (
        installed_bundle(encoder.info, engine.bundles_folder) as info,
        engine.catalogue.write() as session,
    ):
        generation = open_generation(session, collection, register_bundle(session, info))
    with engine.catalogue.read() as session:
        known = known_images(session, generation)
    intake = Intake(engine.store, known, encoder.prepare_image, limits or ImageLimits())
    embedder = Embedder(generation, encoder)

    def prepare(record: Record) -> _Outcome:
        return intake.prepare(record, manifest.image_path(record))

    run = _Run(engine, embedder, intake, manifest)
    with progress_bar(f"Indexing {collection}", len(manifest.records), shown=show_progress) as bar:
        for batch in prepared_ahead(manifest.records, prepare, batch_size, decoders):
            run.write(batch)
            bar.advance(len(batch), f"{len(run.rejections):,} left out" if len(run.rejections) else "")
    embed_missing_texts(engine, embedder, shown=show_progress)
    with engine.catalogue.write() as session:
        activated = _activate_when_complete(session, generation, texts=embedder.reads_texts)
    if activated or run.embedded:
        engine.save_snapshot(collection)
    remove_loose(engine.catalogue, engine.store)
    return run.report()


class _Run:
    """Writes batches and counts what they were."""

    def __init__(
        self,
        engine: SearchEngine,
        embedder: Embedder,
        intake: Intake,
        manifest: Manifest,
    ) -> None:
        self.rejections = manifest.rejections.continued(len(manifest.records))
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
            embedded=self.embedded,
            rejections=self.rejections,
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


def _activate_when_complete(session: Session, generation: Generation, *, texts: bool) -> bool:
    """Make a generation active that is not yet; return whether it was not."""
    active = find_generation(session, generation.collection_id, "active")
    if active is not None and active.id == generation.id:
        return False
    activate(session, generation, texts=texts)
    return True
