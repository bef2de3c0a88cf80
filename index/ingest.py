"""Bring a manifest into a collection: embed what is new or changed, and make it searchable."""

import hashlib
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os.path import commonprefix
from pathlib import PurePosixPath
from time import sleep
from typing import Final, Literal

from sqlalchemy import bindparam, select, update
from sqlalchemy.orm import Session

from index.catalogue import PAUSE_SECONDS
from index.catalogue.collections import (
    Generation,
    find_generation,
    next_sequence,
    open_generation,
    refuse_retired,
)
from index.catalogue.lookup import images_named, parts, rows_among
from index.catalogue.tables import AttributeRow, ImageRow
from index.engine import SearchEngine
from index.erasure import pending_erasures
from index.errors import IncompleteGenerationError, StaleWriteError
from index.feedback import rename_examples
from index.files.bundles import installed_bundle, register_bundle
from index.files.image_store import WRITES_AT_ONCE
from index.files.orphans import begin_put, collect_orphans, keep_files
from index.files.stale import remove_stale
from index.generations.activation import activate, require_complete
from index.generations.reindex import swap
from index.writes.deletion import delete_images
from index.writes.images import Outcome, write_images
from index.writes.intake import (
    KnownImage,
    Prepared,
    compare,
    digests_of,
    embed_pictures,
    known_images,
    prefetch,
    read_limited,
    stored_form,
)
from index.writes.live import remove_images
from index.writes.vectors import Embedder, ImageEncoder, embed_missing_texts, images_without_vectors
from training.common.errors import BundleError, DataError, ImageError
from training.common.manifest import Manifest, Record
from training.common.progress import progress_bar
from training.common.rejections import Rejections
from training.imaging.images import DecodedImage, ImageLimits
from training.imaging.processes.file_decoder import FileDecoder

# Pairs of names that are compared; of more, all are ambiguous.
_MOST_PAIRS: Final = 1_000_000
_COMPARED_AT_ONCE: Final = 256
# A pruning stops above the larger one of this number and this share of the images.
_FEW_PRUNED: Final = 10
_SHARE_PRUNED: Final = 0.1
_SHOWN_FOLDERS: Final = 5

RecordWrites = Callable[[Session, Mapping[str, str]], None]
RecordRemovals = Callable[[Session, Sequence[str]], None]


@dataclass(frozen=True, slots=True)
class Moves:
    """Images of a collection whose files a manifest has under other ids.

    Attributes:
        ids: The new id of each image, by the id that it has.
        replaced: Ids that the manifest gives to a moved file, whose own image it no longer has.
        copies: New ids of files that moved to another id as well.
        ambiguous: Ids whose file is that of several images, or of one that may be at several ids.
    """

    ids: Mapping[str, str]
    replaced: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()
    ambiguous: tuple[str, ...] = ()


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
        copies: Ids of new images that have the file of a moved image.
        ambiguous: Ids of new images that may be one of several with the file of an image that is gone.
        outdated: Ids of the images whose line or file cannot be used now; they stay as they were.
        truncated: Different texts embedded by this run that are longer than the encoder reads.
        took_over: The generation that replaced another one; None if none did.
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
    copies: tuple[str, ...]
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
        """Usable lines that weren't part of the run, such as those of other splits."""
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
    record_moved: Callable[[Session, Moves], None] | None = None,
) -> IngestReport:
    """Put the images of a manifest into a collection, embedded by a bundle.

    Each batch is one transaction, so an interrupted run continues when it is repeated: existing embeddings
    aren't computed again. With the bundle that the collection is searched with, images can be found
    as soon as their batch is written. With another bundle a new generation is built next to the active one,
    and replaces it once it has every image of the collection; see `swap`. Texts are
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
        record: Records the outcomes of a batch by id, at the end of its transaction.
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
        stored = known_images(session, generation)
    absent = tuple(sorted(stored.keys() - manifest.lines.ids - {record.id for record in manifest.records}))
    limits = limits or ImageLimits()
    moves = _find_moves(
        engine, generation, stored, manifest, absent, limits, keep_metadata=keep_metadata, shown=show_progress
    )
    absent = tuple(name for name in absent if name not in moves.ids)
    if prune:
        _require_prunable(engine, generation, manifest, len(stored), absent, prune_limit)
    if moves.ids:
        with engine.home.catalogue.write() as session:
            _move_images(session, generation, moves, stored)
            if record_moved is not None:
                record_moved(session, moves)
        with engine.home.catalogue.read() as session:
            stored = known_images(session, generation)
    files, embedder = FileDecoder(), Embedder(generation, encoder)
    run = _Run(engine, encoder, embedder, files, manifest, stored, limits, moves, record, keep_metadata)
    with files, progress_bar(f"Indexing {collection}", len(manifest.records), shown=show_progress) as bar:
        for batch in run.stored_batches(batch_size):
            run.write(batch)
            bar.advance(len(batch), f"{len(run.rejections):,} left out" if len(run.rejections) else "")
    # Before the generation is complete: it doesn't need the removed images.
    pruned = _prune(engine, collection, absent, record_pruned, shown=show_progress) if prune else 0
    embed_missing_texts(engine.home, embedder, shown=show_progress)
    try:
        with engine.home.catalogue.write() as session:
            role = _role_at_end(session, generation, run.outdated, texts=embedder.reads_texts)
    except IncompleteGenerationError as error:
        if absent and not prune:
            error.add_note(f"{len(absent):,} images of it are not in the manifest: --prune removes them.")
        raise
    if role == "additional":
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
        if role == "first" or run.embedded or pruned or moves.replaced:
            engine.save_snapshot(collection)
        engine.measure_confidence(generation.id, encoder)
    collect_orphans(engine.home.catalogue, engine.home.store, begun=run.begun)
    return run.report(absent, pruned, generation if role == "additional" else None)


def _find_moves(
    engine: SearchEngine,
    generation: Generation,
    stored: Mapping[str, KnownImage],
    manifest: Manifest,
    absent: Sequence[str],
    limits: ImageLimits,
    *,
    keep_metadata: bool,
    shown: bool,
) -> Moves:
    """Compare the files of a manifest with those of its collection; images that are being erased stay."""
    if not stored:
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
            contents |= {
                record.id: (record, candidates) for record, candidates in batch if record.id not in erased
            }
            bar.advance(len(batch))
    return _matched(stored, contents, [name for name in absent if name not in erased])


def _matched(
    stored: Mapping[str, KnownImage],
    contents: Mapping[str, tuple[Record, Collection[str]]],
    absent: Collection[str],
) -> Moves:
    """Match ids that the manifest no longer has, or has with another file, with the ids of the same files.

    `contents` has records of the manifest by id, each with the digests that its file may be stored under;
    none where the file cannot be read.
    """
    changed = {
        name
        for name, (_, digests) in contents.items()
        if digests and name in stored and stored[name].sha256 not in digests
    }
    former: defaultdict[str, list[str]] = defaultdict(list)
    for name in sorted(changed.union(absent)):
        former[stored[name].sha256].append(name)
    claims: defaultdict[str, list[Record]] = defaultdict(list)
    for name, (record, digests) in contents.items():
        former_digest = next((digest for digest in digests if digest in former), None)
        if former_digest is not None and (name in changed or name not in stored):
            claims[former_digest].append(record)
    ids: dict[str, str] = {}
    for digest, records in claims.items():
        ids |= _pairs(former[digest], records)
    moved_to = frozenset(ids.values())
    copies: list[str] = []
    ambiguous: list[str] = []
    for digest, records in claims.items():
        rest = copies if ids.keys() >= set(former[digest]) else ambiguous
        rest += (record.id for record in records if record.id not in moved_to)
    return Moves(
        ids,
        tuple(sorted(name for name in changed if name in moved_to and name not in ids)),
        tuple(copies),
        tuple(ambiguous),
    )


def _pairs(former: Sequence[str], records: Sequence[Record]) -> dict[str, str]:
    """Pair ids of equal files: one with one, or by the longest common end, with at least the file's name."""
    if len(former) == len(records) == 1:
        return {former[0]: records[0].id}
    if len(former) * len(records) > _MOST_PAIRS:
        return {}
    closest = {record.id: _closest(record, former) for record in records}
    counts = Counter(closest.values())
    return {name: new for new, name in closest.items() if name is not None and counts[name] == 1}


def _closest(record: Record, former: Sequence[str]) -> str | None:
    backwards = record.id.casefold()[::-1]
    lengths = [len(commonprefix([backwards, name.casefold()[::-1]])) for name in former]  # noqa: RUF071
    longest = max(lengths)
    is_one = lengths.count(longest) == 1 and longest >= len(PurePosixPath(record.image).name)
    return former[lengths.index(longest)] if is_one else None


def _move_images(
    session: Session, generation: Generation, moves: Moves, stored: Mapping[str, KnownImage]
) -> None:
    """Give images their new ids, in the caller's transaction, and remove those whose ids they take."""
    collection_id = generation.collection_id
    sequence = next_sequence(session, collection_id)
    if moves.replaced:
        delete_images(session, generation.collection, moves.replaced)
    rows = [
        # No id has a slash: none of these is taken on the way.
        {"key": row.id, "aside": f"/{row.id}", "name": moves.ids[name]}
        for name, row in images_named(session, collection_id, moves.ids).items()
        if row.sha256 == stored[name].sha256
    ]
    if len(rows) < len(moves.ids):
        raise StaleWriteError("Images were changed by somebody else meanwhile: index the manifest again.")
    for column in ("aside", "name"):
        renamed = update(ImageRow).where(ImageRow.id == bindparam("key"))
        values = {"external_id": bindparam(column), "sequence": sequence}
        session.connection().execute(renamed.values(values), rows)
    rename_examples(session, collection_id, moves.ids)


def _require_prunable(
    engine: SearchEngine,
    generation: Generation,
    manifest: Manifest,
    count: int,
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
    if count and len(absent) == count:
        raise DataError(
            f"None of the {count:,} images of {collection!r} is in the manifest in {manifest.folder}: is it "
            "the right one? Pruning would remove them all; index without it, or remove the collection."
        )
    if limit is None:
        most: float = max(_FEW_PRUNED, count * _SHARE_PRUNED)
    else:
        most = count * limit if isinstance(limit, float) else limit
    if len(absent) > most:
        with engine.home.catalogue.read() as session:
            keys = [row.id for row in images_named(session, generation.collection_id, absent).values()]
            # The folders that an import has noted.
            query = select(AttributeRow.text_value).where(AttributeRow.name == "folder")
            rows = rows_among(session, query, AttributeRow.image_id, keys)
            folders = Counter(row.text_value for row in rows if row.text_value is not None)
        named = ", ".join(f"{count:,} in {folder!r}" for folder, count in folders.most_common(_SHOWN_FOLDERS))
        raise DataError(
            f"--prune would remove {len(absent):,} of the {count:,} images of {collection!r}"
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
        # Others can write in between; what was removed before a stop stays removed.
        for part in parts(ids):
            removed += len(remove_images(engine.home, collection, part, record))
            bar.advance(len(part))
            sleep(PAUSE_SECONDS)
    return removed


_Outcome = Prepared | ImageError
_Item = tuple[Record, _Outcome]


@dataclass(slots=True)
class _Run:
    """Prepares the records of a manifest in threads, writes them in batches, and counts what they were."""

    engine: SearchEngine
    encoder: ImageEncoder
    embedder: Embedder
    files: FileDecoder
    manifest: Manifest
    stored: Mapping[str, KnownImage]
    limits: ImageLimits
    moves: Moves
    record: RecordWrites | None
    keep_metadata: bool
    rejections: Rejections = field(init=False)
    outdated: set[str] = field(init=False)
    moved_here: frozenset[str] = field(init=False)
    embedded: int = 0
    begun: list[int] = field(default_factory=list)
    counts: Counter[Outcome | Literal["moved"]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.rejections = self.manifest.rejections.continued(len(self.manifest.records))
        self.outdated = set(self.manifest.lines.unusable & self.stored.keys())
        self.moved_here = frozenset(self.moves.ids.values())

    def stored_batches(self, batch_size: int) -> Iterator[list[tuple[_Item, _Outcome]]]:
        """Read, decode and store the images of the manifest ahead; yield them in batches to be written."""
        checked = prefetch(self.manifest.records, self._check, batch_size, give_up=self.files.close)
        noted = self._noted(checked)
        return prefetch(noted, self._keep, batch_size, threads=WRITES_AT_ONCE, prefetch_batches=1)

    def _check(self, record: Record) -> _Outcome:
        """Return what is to be done for a record; the error when its image cannot be used."""
        try:
            content = read_limited(self.manifest.image_path(record), self.limits)
            try:
                item = compare(self.stored, record, content, keep_metadata=self.keep_metadata)
            except ImageError:
                # The decoder has better words for most damage.
                self._decoded(content)
                raise
            if item.is_new:
                # The vector is of the file that is stored.
                item.take_picture(self._decoded(item.content), self.encoder)
        except ImageError as error:
            return error
        item.is_kept = self.engine.home.store.holds(item.sha256, item.content)
        item.content = b""
        return item

    def _decoded(self, content: bytes) -> DecodedImage:
        return self.files.decode(content, self.limits, self.encoder.min_image_side)

    def _noted(self, batches: Iterable[list[_Item]]) -> Iterator[_Item]:
        """Note the files to keep, so that they are found if this run is killed."""
        for batch in batches:
            coming = [
                item
                for _, item in batch
                # An existing file may be gone by the time its image is written; it is then stored again.
                if isinstance(item, Prepared) and (item.is_new or item.replaces or not item.is_kept)
            ]
            if coming:
                with self.engine.home.catalogue.write() as session:
                    begun = begin_put(session, {item.sha256 for item in coming})
                self.begun.append(begun)
                for item in coming:
                    item.begun = begun
            yield from batch

    def _keep(self, item: _Item) -> _Outcome:
        """Put the file of an image into the store if it is not there, also where the disk has lost it."""
        record, outcome = item
        if isinstance(outcome, Prepared) and not outcome.is_kept:
            try:
                self.engine.home.store.put(self._read_again(record, outcome.sha256))
            except ImageError as error:
                return error
        return outcome

    def _read_again(self, record: Record, sha256: str) -> bytes:
        """Read the file of a checked image as it is stored."""
        content = read_limited(self.manifest.image_path(record), self.limits)
        stored = stored_form(content, keep_metadata=self.keep_metadata)
        if hashlib.sha256(stored).hexdigest() != sha256:
            raise ImageError("The file was changed while it was being indexed.")
        return stored

    def write(self, batch: Sequence[tuple[_Item, _Outcome]]) -> None:
        """Embed and commit a batch."""
        prepared: list[Prepared] = []
        done: dict[str, Outcome] = {}
        begun = {outcome.begun for _, outcome in batch if isinstance(outcome, Prepared)}
        for (record, _), outcome in batch:
            if isinstance(outcome, ImageError):
                self.rejections.add(record.line, f"{record.image}: {outcome}")
                if record.id in self.stored:
                    self.outdated.add(record.id)
            elif outcome.is_same:
                done[record.id] = "unchanged"
            else:
                prepared.append(outcome)
        if prepared:
            self.embedded += embed_pictures(self.embedder, prepared)
            # Texts of an image whose file alone changes have vectors; `embed_missing_texts` makes others.
            changed = [item for item in prepared if item.picture is not None or item.replaces is None]
            texts = self.embedder.texts([text for item in changed for text in item.record.texts])
            writes = [item.write(texts) for item in prepared]
            with self.engine.home.catalogue.write() as session:
                outcomes = write_images(session, self.embedder.generation, writes)
                files = {write.new_file: write.record for write in writes if write.new_file is not None}
                keep_files(
                    session,
                    self.engine.home.store,
                    files,
                    lambda digest: self._read_again(files[digest], digest),
                    begun,
                )
                if self.record is not None:
                    self.record(session, outcomes)
            done |= outcomes
        self.counts.update("moved" if name in self.moved_here else outcome for name, outcome in done.items())

    def report(self, absent: tuple[str, ...], pruned: int, took_over: Generation | None) -> IngestReport:
        """Return what was done."""
        return IngestReport(
            added=self.counts["created"],
            updated=self.counts["replaced"],
            moved={former: name for former, name in self.moves.ids.items() if name not in self.outdated},
            unchanged=self.counts["unchanged"],
            embedded=self.embedded,
            rejections=self.rejections,
            found=max(self.manifest.lines.count, len(self.manifest.records)),
            refused_lines=len(self.manifest.rejections),
            absent=absent,
            pruned=pruned,
            replaced=self.moves.replaced,
            copies=self.moves.copies,
            ambiguous=self.moves.ambiguous,
            outdated=tuple(sorted(self.outdated)),
            truncated=self.embedder.truncated,
            took_over=took_over,
        )


def _role_at_end(
    session: Session, generation: Generation, outdated: Collection[str], *, texts: bool
) -> Literal["active", "first", "additional"]:
    """Activate a complete generation if none is active, and return its role.

    Images whose file cannot be used now are embedded from the store when it takes over.
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
        # A swap would embed images that aren't in the manifest, which nobody has requested.
        require_complete(session, generation, texts=texts)
    return "additional"
