"""Bring a manifest into a collection: embed what is new or changed, and make it searchable."""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

from sqlalchemy.orm import Session

from index.catalogue.collections import Generation, find_generation, open_generation, refuse_retired
from index.engine import SearchEngine
from index.erasure import pending_erasures
from index.errors import IncompleteGenerationError
from index.files.bundles import installed_bundle, register_bundle
from index.files.image_store import WRITES_AT_ONCE
from index.files.orphans import collect_orphans, keep_files, mark_orphans
from index.files.stale import remove_stale
from index.generations.activation import activate, require_complete
from index.generations.reindex import swap
from index.moves import Moves, find_moves, folders_of, move_images
from index.writes.embedder import Embedder, ImageEncoder, embed_missing_texts
from index.writes.images import ImageWrite, Outcome, write_images
from index.writes.intake import CheckedImage, Intake, KnownImage, Prepared, digests_of, known_images
from index.writes.live import remove_in_batches
from index.writes.missing_vectors import images_without_vectors
from index.writes.prefetch import prefetch
from training.common.errors import BundleError, DataError, ImageError
from training.common.manifest import Manifest, Record
from training.common.progress import progress_bar
from training.common.rejections import Rejections
from training.imaging.images import ImageLimits
from training.imaging.processes.file_decoder import FileDecoder

RecordWrites = Callable[[Session, Mapping[str, str]], None]
RecordRemovals = Callable[[Session, Sequence[str]], None]
RecordMoves = Callable[[Session, Moves], None]
_Outcome = CheckedImage | ImageError
_Item = tuple[Record, _Outcome]

_COMPARED_AT_ONCE: Final = 256
# A pruning stops above the larger one of this number and this share of the images.
_FEW_PRUNED: Final = 10
_SHARE_PRUNED: Final = 0.1
_SHOWN_FOLDERS: Final = 5


@dataclass(frozen=True, slots=True)
class IngestReport:
    """Counts of a run over the records of a manifest.

    Attributes:
        added: New images.
        updated: Images whose file or record changed.
        moved: Images that were there already under another id, by the former ids.
        unchanged: Images that were there already.
        embedded: Images that went through the encoder.
        rejections: The images that cannot be used and were left out.
        found: Lines of the manifest, those of other splits and unusable ones included.
        refused_lines: Lines among them that cannot be used.
        absent: Ids of the images that were in the collection before and are on no line of the manifest.
        pruned: Number of these that were removed.
        replaced: Ids of images that were removed, since the manifest gives their ids to moved files.
        ambiguous: Ids of new images that have the file of several images which the manifest no longer has.
        outdated: Ids of the images whose line or file cannot be used now; they stay as they were.
        truncated: Different texts embedded by this run that are longer than the encoder reads.
        took_over: The generation that took the place of another one; None where none did.
    """

    added: int
    updated: int
    moved: Mapping[str, str]
    unchanged: int
    embedded: int
    rejections: Rejections
    found: int
    refused_lines: int
    absent: tuple[str, ...]
    pruned: int
    replaced: tuple[str, ...]
    ambiguous: tuple[str, ...]
    outdated: tuple[str, ...]
    truncated: int
    took_over: Generation | None

    @property
    def taken(self) -> int:
        """Images of the manifest that the collection has now."""
        return self.added + self.updated + len(self.moved) + self.unchanged

    @property
    def left_out(self) -> int:
        """Usable lines that the run was not given, such as those of other splits."""
        return self.found - self.taken - self.refused_lines - len(self.rejections)


def ingest_manifest(
    engine: SearchEngine,
    collection: str,
    encoder: ImageEncoder,
    manifest: Manifest,
    *,
    batch_size: int = 64,
    limits: ImageLimits | None = None,
    keep_metadata: bool = False,
    show_progress: bool = True,
    preload_s: float = 0.0,
    prune: bool = False,
    prune_limit: float | None = None,
    record: RecordWrites | None = None,
    record_pruned: RecordRemovals | None = None,
    record_moved: RecordMoves | None = None,
) -> IngestReport:
    """Put the images of a manifest into a collection, embedded by a bundle.

    Each batch is one transaction, so a run that was stopped goes on when it is repeated: what is there
    already is not embedded again. With the bundle that the collection is searched with, images can be found
    as soon as their batch is written. With another bundle a new generation is built beside the active one,
    and takes its place once it has every image of the collection; see `swap`. Texts are
    embedded with their images where the bundle has a text encoder, and those that still lack a vector at the
    end. Images whose file the manifest has under another id get that id first, in one transaction.

    Args:
        engine: Engine of the home.
        collection: Name of the collection, created if it does not exist.
        encoder: Loaded from a bundle.
        manifest: Records to index; its rejections say how much may be left out, lines and images together.
        batch_size: Images a forward pass and a transaction.
        limits: Limits of bytes, pixels and frames of an image.
        keep_metadata: Store files as they are; else without position, names and comments.
        show_progress: Show a bar on standard error.
        preload_s: Seconds that services may take to load a generation that replaces another.
        prune: Remove the images that were in the collection before and are on no line of the manifest. Those
            on lines of other splits and on unusable lines stay.
        prune_limit: Most images to remove: a number, or a share of the collection's where it is a fraction
            below 1 or is 1.0; None: 10 images or a tenth of them, whichever is more.
        record: Writes down the outcomes of a batch by id, at the end of its transaction.
        record_pruned: Writes down the ids of a batch that is removed, at the end of its transaction.
        record_moved: Writes down the moves, at the end of their transaction.

    Raises:
        DataError: The manifest is empty, or too much of it cannot be used; or it is none to prune by, since
            the id of a line cannot be read, it has no image that the collection had before, or more than
            `prune_limit` would go.
        StaleWriteError: Somebody else wrote an image at the same time; what was embedded stays.
        GenerationError: The new generation lacks images of the collection, or a picture changed that is still
            searched with another bundle, or the collection came to be searched with another bundle
            meanwhile. What was embedded stays.
        BundleError: The encoder comes from no bundle, or the bundle cannot be copied.
        StoreError: The folder of bundles cannot be made or opened.
    """
    if encoder.info is None:
        raise BundleError("Only an encoder loaded from a bundle can index a collection: save it first.")
    if not manifest.records:
        raise DataError(f"The manifest in {manifest.folder} has no images to index.")
    remove_stale(itertools.chain(engine.home.store.unfinished(), engine.home.bundles_folder.glob(".*.part")))
    with (
        installed_bundle(encoder.info, engine.home.bundles_folder) as info,
        engine.home.catalogue.write() as session,
    ):
        generation = open_generation(session, collection, register_bundle(session, info))
    with engine.home.catalogue.read() as session:
        known = known_images(session, generation)
    absent = tuple(sorted(known.keys() - manifest.lines.ids - {record.id for record in manifest.records}))
    limits = limits or ImageLimits()
    moves = _find_moves(
        engine, generation, known, manifest, absent, limits, keep_metadata=keep_metadata, shown=show_progress
    )
    absent = tuple(name for name in absent if name not in moves.ids)
    if prune:
        _require_prunable(engine, generation, manifest, len(known), absent, prune_limit)
    if moves.ids:
        with engine.home.catalogue.write() as session:
            move_images(session, generation, moves, known)
            if record_moved is not None:
                record_moved(session, moves)
        with engine.home.catalogue.read() as session:
            known = known_images(session, generation)
    files = FileDecoder()
    intake = Intake(
        engine.home.store,
        known,
        files,
        encoder.prepare_image,
        limits,
        encoder.min_image_side,
        keep_metadata,
    )
    embedder = Embedder(generation, encoder)
    run = _Run(engine, embedder, intake, manifest, record, moves)
    with files, progress_bar(f"Indexing {collection}", len(manifest.records), shown=show_progress) as bar:
        for batch in run.stored_batches(batch_size):
            run.write(batch)
            bar.advance(len(batch), f"{len(run.rejections):,} left out" if len(run.rejections) else "")
    # Before the generation is complete: it need not have what goes.
    pruned = _prune(engine, collection, absent, record_pruned, shown=show_progress) if prune else 0
    embed_missing_texts(engine.home, embedder, shown=show_progress)
    try:
        with engine.home.catalogue.write() as session:
            place = _place_at_end(session, generation, run.outdated, texts=embedder.reads_texts)
    except IncompleteGenerationError as error:
        if absent and not prune:
            error.add_note(f"{len(absent):,} images of it are not in the manifest: --prune removes them.")
        raise
    if place == "beside":
        # Services that are to load it read this.
        engine.save_snapshot_of(generation)
        swap(
            engine,
            generation,
            encoder,
            preload_s=preload_s,
            batch_size=batch_size,
            show_progress=show_progress,
        )
    else:
        if place == "first" or run.embedded or pruned or moves.replaced:
            engine.save_snapshot(collection)
        engine.measure_confidence(generation.id, encoder)
    collect_orphans(engine.home.catalogue, engine.home.store)
    return run.report(absent, pruned, generation if place == "beside" else None)


def _find_moves(
    engine: SearchEngine,
    generation: Generation,
    known: Mapping[str, KnownImage],
    manifest: Manifest,
    absent: Sequence[str],
    limits: ImageLimits,
    *,
    keep_metadata: bool,
    shown: bool,
) -> Moves:
    """Compare the files of a manifest with those of its collection; images that are being erased stay."""
    if not known:
        return Moves({})
    erased = {
        name
        for erasure in pending_erasures(engine.home.bundles_folder.parent)
        if erasure.collection == generation.collection
        for name in erasure.ids
    }
    contents: dict[str, tuple[Record, tuple[str, ...]]] = {}
    records = manifest.records

    def digests(record: Record) -> tuple[str, ...]:
        return digests_of(manifest.image_path(record), limits, keep_metadata=keep_metadata)

    with progress_bar(f"Comparing with {generation.collection}", len(records), shown=shown) as bar:
        for batch in prefetch(records, digests, _COMPARED_AT_ONCE):
            contents |= {record.id: (record, found) for record, found in batch if record.id not in erased}
            bar.advance(len(batch))
    return find_moves(known, contents, [name for name in absent if name not in erased])


def _require_prunable(
    engine: SearchEngine,
    generation: Generation,
    manifest: Manifest,
    known: int,
    absent: Sequence[str],
    limit: float | None,
) -> None:
    collection = generation.collection
    if manifest.lines.unnamed:
        raise DataError(
            f"Lines of the manifest in {manifest.folder} whose id cannot be read: "
            f"{manifest.lines.unnamed:,}. They may be of any image, so none is removed: mend them, or index "
            "without pruning."
        )
    if known and len(absent) == known:
        raise DataError(
            f"None of the {known:,} images of {collection!r} is in the manifest in {manifest.folder}: is it "
            "the right one? Pruning would remove them all; index without it, or remove the collection."
        )
    if limit is None:
        most: float = max(_FEW_PRUNED, known * _SHARE_PRUNED)
    else:
        most = known * limit if isinstance(limit, float) else limit
    if len(absent) > most:
        with engine.home.catalogue.read() as session:
            folders = folders_of(session, generation.collection_id, absent)
        named = ", ".join(f"{count:,} in {folder!r}" for folder, count in folders.most_common(_SHOWN_FOLDERS))
        raise DataError(
            f"--prune would remove {len(absent):,} of the {known:,} images of {collection!r}"
            f"{named and f' ({named})'}, more than the limit of {int(most):,}; nothing was changed. Is a "
            f"folder missing or a disk not mounted? If they are to go, give --prune-limit {len(absent)}."
        )


def _prune(
    engine: SearchEngine,
    collection: str,
    ids: Sequence[str],
    record: RecordRemovals | None,
    *,
    shown: bool,
) -> int:
    removed = 0
    with progress_bar(f"Removing from {collection}", len(ids), shown=shown and bool(ids)) as bar:
        for given, there in remove_in_batches(engine.home, collection, ids, record):
            removed += there
            bar.advance(given)
    return removed


class _Run:
    """Writes batches and counts what they were."""

    def __init__(
        self,
        engine: SearchEngine,
        embedder: Embedder,
        intake: Intake,
        manifest: Manifest,
        record: RecordWrites | None,
        moves: Moves,
    ) -> None:
        self.rejections = manifest.rejections.continued(len(manifest.records))
        self.embedded = 0
        self._engine = engine
        self._embedder = embedder
        self._intake = intake
        self._manifest = manifest
        self._record = record
        self._moves = moves
        self._moved_here = frozenset(moves.ids.values())
        self._counts: Counter[Outcome | Literal["moved"]] = Counter()
        self.outdated = set(manifest.lines.unusable & intake.known.keys())

    def stored_batches(self, batch_size: int) -> Iterator[list[tuple[_Item, _Outcome]]]:
        """Read, decode and store the images of the manifest ahead; yield them in batches to be written."""
        files = self._intake.files
        checked = prefetch(self._manifest.records, self._check, batch_size, give_up=files.close)
        noted = self._noted(checked)
        return prefetch(noted, self._keep, batch_size, threads=WRITES_AT_ONCE, prefetch_batches=1)

    def write(self, batch: Sequence[tuple[_Item, _Outcome]]) -> None:
        """Embed and commit a batch."""
        for (record, _), outcome in batch:
            if isinstance(outcome, ImageError):
                self.rejections.add(record.line, f"{record.image}: {outcome}")
                if record.id in self._intake.known:
                    self.outdated.add(record.id)
        checked = [outcome for _, outcome in batch if isinstance(outcome, CheckedImage)]
        prepared = [item.prepared for item in checked if item.prepared is not None]
        if prepared:
            writes = self._embed(prepared)
            with self._engine.home.catalogue.write() as session:
                outcomes = write_images(session, self._embedder.generation, writes)
                keep_files(session, self._engine.home.store, self._originals(writes))
                if self._record is not None:
                    self._record(session, outcomes)
            self._counts.update(
                "moved" if name in self._moved_here else outcome for name, outcome in outcomes.items()
            )
        same = [
            record.id
            for (record, _), outcome in batch
            if isinstance(outcome, CheckedImage) and outcome.prepared is None
        ]
        self._counts.update("moved" if name in self._moved_here else "unchanged" for name in same)

    def report(self, absent: tuple[str, ...], pruned: int, took_over: Generation | None) -> IngestReport:
        """Return what was done."""
        return IngestReport(
            added=self._counts["created"],
            updated=self._counts["replaced"],
            moved={former: name for former, name in self._moves.ids.items() if name not in self.outdated},
            unchanged=self._counts["unchanged"],
            embedded=self.embedded,
            rejections=self.rejections,
            found=max(self._manifest.lines.count, len(self._manifest.records)),
            refused_lines=len(self._manifest.rejections),
            absent=absent,
            pruned=pruned,
            replaced=self._moves.replaced,
            ambiguous=self._moves.ambiguous,
            outdated=tuple(sorted(self.outdated)),
            truncated=self._embedder.truncated,
            took_over=took_over,
        )

    def _check(self, record: Record) -> _Outcome:
        return self._intake.prepare(record, self._manifest.image_path(record))

    def _noted(self, batches: Iterable[list[_Item]]) -> Iterator[_Item]:
        """Note the files that are to be kept, so that they are found if this run is killed."""
        for batch in batches:
            lacking = {item.sha256 for _, item in batch if isinstance(item, CheckedImage) and not item.kept}
            if lacking:
                with self._engine.home.catalogue.write() as session:
                    mark_orphans(session, lacking)
            yield from batch

    def _keep(self, item: _Item) -> _Outcome:
        record, outcome = item
        if isinstance(outcome, ImageError):
            return outcome
        return self._intake.keep(outcome, self._manifest.image_path(record)) or outcome

    def _embed(self, prepared: Sequence[Prepared]) -> list[ImageWrite]:
        pixels = [item.pixels for item in prepared if item.pixels is not None]
        vectors = iter(self._embedder.images(pixels))
        # Texts of an image whose file alone changes have vectors; `embed_missing_texts` makes others.
        changed = [item for item in prepared if item.picture is not None or item.replaces is None]
        texts = self._embedder.texts([text for item in changed for text in item.record.texts])
        self.embedded += len(pixels)
        return [item.write(vectors, texts) for item in prepared]

    def _originals(self, writes: Sequence[ImageWrite]) -> dict[str, Callable[[], bytes]]:
        return {
            write.new_file: partial(
                self._intake.read_again, write.new_file, self._manifest.image_path(write.record)
            )
            for write in writes
            if write.new_file is not None
        }


def _place_at_end(
    session: Session, generation: Generation, outdated: Collection[str], *, texts: bool
) -> Literal["active", "first", "beside"]:
    """Make a complete generation active where none is; tell whether it was, is the first, or is beside one.

    Images whose file cannot be used now are embedded from the store when it takes over.

    Raises:
        GenerationError: The generation is incomplete, or another became active since the run began.
    """
    active = find_generation(session, generation.collection_id, "active")
    if active is None:
        activate(session, generation, texts=texts)
        return "first"
    if active.id == generation.id:
        return "active"
    refuse_retired(session, generation)
    lacking = images_without_vectors(session, generation, limit=len(outdated) + 1)
    if not all(image.id in outdated for image in lacking):
        # A swap would embed what the manifest lacks, which nobody has asked for.
        require_complete(session, generation, texts=texts)
    return "beside"
