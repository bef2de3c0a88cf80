"""Erasure of images from the catalogue, the store and the snapshots."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from index.audit.chain import Trail
from index.audit.event import Event
from index.catalogue.audit_tables import BackupRow
from index.catalogue.collections import get_generation, names_of, require_collection
from index.catalogue.full_text import merge_words
from index.catalogue.lookup import AT_ONCE, images_named, parts
from index.catalogue.storable import storable_text
from index.catalogue.tables import CollectionRow, FeedbackRow, GenerationRow
from index.erasure.pending import NOBODY, People
from index.errors import CollectionInUseError, GenerationError
from index.files.orphans import collect_orphans
from index.home import Home
from index.idempotency import forget_answers
from index.reports.received import remove_reports_of, study_keys, without_images
from index.views.manager import Views
from index.writes.deletion import delete_images, remove_unused_fields


@dataclass(frozen=True, slots=True)
class KnownBackup:
    """A backup that was written while an image was there: place, time and digest of its `backup.json`."""

    path: str
    created: str
    digest: str

    @property
    def is_there(self) -> bool:
        """Whether the file lies where it was written."""
        return Path(self.path).exists()


@dataclass(frozen=True, slots=True)
class Erased:
    """Result of an erasure.

    Attributes:
        images: Ids of those that the collection had.
        digests: SHA-256 of their files.
        shared: Those of the digests whose file stays, since another image is the same file.
        judgements: Number of judgements of other images that named one of them.
        reports: Number of reports that waited for images, or were of the patients.
        backups: Backups that still hold one of them.
    """

    images: tuple[str, ...]
    digests: tuple[str, ...]
    shared: tuple[str, ...]
    judgements: int
    reports: int
    backups: tuple[KnownBackup, ...]


def erase_images(
    home: Home,
    trail: Trail,
    collection: str,
    ids: Sequence[str],
    event: Event | None,
    check: Callable[[Session], None] = lambda _: None,
    people: People = NOBODY,
    former: Sequence[str] = (),
) -> Erased:
    """Remove images with all that belongs to them; the free pages of the database still hold rows of them.

    Rows, the event and the ids in the audit trail change in one transaction. Then files, thumbnails and
    snapshots go. After a stop the same call goes on.

    Args:
        home: Home of the collection.
        trail: The audit trail, which keeps keyed hashes of the ids.
        collection: Name of the collection.
        ids: Ids of the images, also of those that were removed before.
        event: Event that tells of it; None: no audit trail is kept.
        check: Raises an error where the images must stay now, in the transaction that removes them.
        people: Patients and studies whose reports go, beside those of studies that have no image left.
        former: Ids that images had before, which no image has now: the trail forgets them, too.

    Raises:
        UnknownCollectionError: No collection has this name.
        CollectionInUseError: A backup is being written, which would hold them.
        CatalogueError: The catalogue cannot be used.
        DiskFullError: The disk has no space left.
        StoreError: The disk does not let go of a file.
    """
    ids = [name for name in ids if storable_text(name)]
    with home.store.removing() as allowed:
        if not allowed:
            raise CollectionInUseError(
                "A backup is being written, which would hold the images: erase them afterwards."
            )
        with home.catalogue.write() as session:
            check(session)
            collection_id = require_collection(session, collection).id
            keys = [row.id for row in images_named(session, collection_id, ids).values()]
            backups = _backups(session, keys, all_there=len(keys) == len(set(ids)))
            studies = {key for part in parts(keys) for key in study_keys(session, collection_id, part)}
            removed = delete_images(session, collection, ids)
            gone = {*people.studies, *without_images(session, collection_id, studies)}
            reports = remove_reports_of(session, collection_id, people.patients, gone)
            judgements = _forget_examples(session, collection, frozenset(ids))
            _have_views_read_anew(session, collection)
            merge_words(session)
            forget_answers(session)
            for name in names_of(session, collection):
                trail.forget(session, name, [*ids, *former])
            if event is not None:
                details = {**event.details, "reports": reports} if reports else event.details
                trail.append_in(session, [replace(event, details=details)])
        digests = set(removed.values())
        collect_orphans(home.catalogue, home.store, digests)
    remove_unused_fields(home.catalogue)
    _rewrite_snapshots(home, collection)
    return Erased(
        tuple(removed),
        tuple(sorted(digests)),
        tuple(sorted(digest for digest in digests if home.store.has(digest))),
        judgements,
        reports,
        tuple(backups),
    )


def unfinished_backups(session: Session) -> list[Path]:
    """Return what killed backups have left in the folders that backups were written to."""
    folders = {Path(path).parent for path in session.execute(select(BackupRow.path)).scalars()}
    return sorted(path for folder in folders for path in folder.glob(".*.part") if path.is_dir())


def _backups(session: Session, keys: Collection[int], *, all_there: bool) -> list[KnownBackup]:
    """Return the backups that have keys as high as these; all where an image was removed before."""
    query = select(BackupRow).order_by(BackupRow.created)
    if all_there and keys:
        query = query.where(BackupRow.last_image >= min(keys))
    rows = session.execute(query).scalars()
    return [KnownBackup(row.path, row.created, row.digest) for row in rows]


def _forget_examples(session: Session, collection: str, ids: frozenset[str]) -> int:
    """Remove the judgements for queries that name one of these images as an example."""
    of_collection = FeedbackRow.collection_id == require_collection(session, collection).id
    query = select(FeedbackRow.image_id, FeedbackRow.query_digest, FeedbackRow.query).where(of_collection)
    named = [
        (row.image_id, row.query_digest)
        for row in session.execute(query.execution_options(yield_per=AT_ONCE))
        if not ids.isdisjoint((*row.query.get("images", ()), *row.query.get("unlike_images", ())))
    ]
    for image, digest in named:
        session.execute(
            delete(FeedbackRow).where(FeedbackRow.image_id == image, FeedbackRow.query_digest == digest)
        )
    return len(named)


def _have_views_read_anew(session: Session, collection: str) -> None:
    """Let no view of any process be caught up, which would keep the rows, and no snapshot be used."""
    row = CollectionRow.id == require_collection(session, collection).id
    session.execute(update(CollectionRow).where(row).values(trimmed=CollectionRow.sequence))


def _rewrite_snapshots(home: Home, collection: str) -> None:
    """Remove the snapshots of all generations of a collection, and write those of their images anew."""
    with home.catalogue.read() as session:
        of_collection = GenerationRow.collection_id == require_collection(session, collection).id
        numbers = session.execute(select(GenerationRow.id).where(of_collection)).scalars().all()
        generations = [get_generation(session, number)[0] for number in numbers]
    for generation in generations:
        folders = [home.snapshots_folder / name for name in (generation.uid, f"{generation.uid}-texts")]
        had = folders[0].is_dir()
        # A running service may remove the manifest itself, or write others here: the folders stay.
        for path in (path for folder in folders for path in folder.glob("*")):
            path.unlink(missing_ok=True)
        if had:
            views = Views(home.snapshots_folder)
            try:
                with home.catalogue.read() as session:
                    found, sequence = get_generation(session, generation.id)
                    views.save(session, found, sequence)
            except GenerationError:
                # Dropped meanwhile.
                continue
            finally:
                views.close()
