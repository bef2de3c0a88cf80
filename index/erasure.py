"""Erasure of images and people from catalogue, store and snapshots, kept on record until it is done."""

import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from index.audit.chain import Trail
from index.audit.event import Event
from index.catalogue.collections import get_generation, names_of, require_collection
from index.catalogue.full_text import merge_words
from index.catalogue.lookup import AT_ONCE, images_named, parts, storable_text
from index.catalogue.tables import BackupRow, CollectionRow, FeedbackRow, GenerationRow
from index.errors import CollectionInUseError, GenerationError
from index.files.orphans import collect_orphans
from index.files.stale import try_lock
from index.home import Home
from index.idempotency import forget_answers
from index.reports import images_of_people, remove_reports_of, study_keys, without_images
from index.views.manager import Views
from index.writes.deletion import delete_images, remove_unused_fields
from training.clinical.pseudonyms import keyed_hash
from training.common.atomic import atomic_file

_FOLDER: Final = "erasures"
_HASH: Final = re.compile(r"[0-9a-f]{16}")
_UID: Final = re.compile(r"[0-9.]{1,64}")


@dataclass(frozen=True, slots=True)
class KnownBackup:
    """A backup that was written while an image existed: path, time and digest of its `backup.json`."""

    path: str
    created: str
    digest: str

    @property
    def is_there(self) -> bool:
        """Whether the file is still where it was written."""
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


@dataclass(frozen=True, slots=True)
class People:
    """Patients by their keyed hashes, and studies by keys such as "study:1.2.3" and "accession:HASH"."""

    patients: tuple[str, ...] = ()
    studies: tuple[str, ...] = ()

    @classmethod
    def from_names(cls, key: bytes, patient: str | None, study: str | None) -> Self:
        """Return the patient and the study that a person names; the numbers themselves are kept nowhere.

        Args:
            key: Secret of the home folder.
            patient: Patient ID, or its keyed hash as metadata has it.
            study: Study Instance UID, accession number, or the keyed hash of that.
        """
        patients = () if patient is None else _forms(key, "patient", patient)
        if study is None:
            return cls(patients)
        keys = [f"accession:{form}" for form in _forms(key, "accession", study)]
        if storable_text(study) and _UID.fullmatch(study.strip()):
            keys.append(f"study:{study.strip()}")
        return cls(patients, tuple(keys))

    def with_others(self, others: "People") -> "People":
        """Return these patients and studies together with others."""
        return People((*self.patients, *others.patients), (*self.studies, *others.studies))

    def images(self, session: Session, collection: str) -> list[str]:
        """Return the ids of their images in a collection."""
        if not self.patients and not self.studies:
            return []
        return images_of_people(
            session, require_collection(session, collection).id, self.patients, self.studies
        )


NOBODY: Final = People()


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
    snapshots are removed. After an interruption the same call continues.

    Args:
        home: Home of the collection.
        trail: The audit trail, which keeps keyed hashes of the ids.
        collection: Name of the collection.
        ids: Ids of the images, also of those that were removed before.
        event: Event that records it; None: no audit trail is kept.
        check: Raises an error where the images must stay now, in the transaction that removes them.
        people: Patients and studies whose reports are removed, in addition to those of studies that have no
            image left.
        former: Ids that images had before, which no image has now: they are also removed from the trail.

    Raises:
        UnknownCollectionError: No collection has this name.
        CollectionInUseError: A backup is being written, which would hold them.
        CatalogueError: The catalogue cannot be used.
        DiskFullError: The disk has no space left.
        StoreError: The disk does not remove a file.
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
            query = select(BackupRow).order_by(BackupRow.created)
            # Any backup may hold an image that was removed before.
            if keys and len(keys) == len(set(ids)):
                query = query.where(BackupRow.last_image >= min(keys))
            backups = [
                KnownBackup(row.path, row.created, row.digest) for row in session.execute(query).scalars()
            ]
            studies = {key for part in parts(keys) for key in study_keys(session, collection_id, part)}
            removed = delete_images(session, collection, ids)
            gone = {*people.studies, *without_images(session, collection_id, studies)}
            reports = remove_reports_of(session, collection_id, people.patients, gone)
            judgements = _forget_examples(session, collection_id, frozenset(ids))
            # No view of any process is caught up, which would keep the rows, and no snapshot is used.
            own = update(CollectionRow).where(CollectionRow.id == collection_id)
            session.execute(own.values(trimmed=CollectionRow.sequence))
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
    """Return leftovers of killed backups in the folders that backups were written to."""
    folders = {Path(path).parent for path in session.execute(select(BackupRow.path)).scalars()}
    return sorted(path for folder in folders for path in folder.glob(".*.part") if path.is_dir())


def _forget_examples(session: Session, collection_id: int, ids: frozenset[str]) -> int:
    """Remove the judgements for queries that name one of these images as an example."""
    query = select(FeedbackRow.image_id, FeedbackRow.query_digest, FeedbackRow.query)
    query = query.where(FeedbackRow.collection_id == collection_id)
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


def _rewrite_snapshots(home: Home, collection: str) -> None:
    """Remove the snapshots of all generations of a collection, and write those of their images again."""
    with home.catalogue.read() as session:
        in_collection = GenerationRow.collection_id == require_collection(session, collection).id
        numbers = session.execute(select(GenerationRow.id).where(in_collection)).scalars().all()
        generations = [get_generation(session, number)[0] for number in numbers]
    for generation in generations:
        folders = [home.snapshots_folder / name for name in (generation.uid, f"{generation.uid}-texts")]
        had = folders[0].is_dir()
        # A running service may remove the manifest itself, or write others here: the folders stay.
        for path in (path for folder in folders for path in folder.glob("*")):
            path.unlink(missing_ok=True)
        if had:
            # It may be dropped meanwhile.
            with (
                closing(Views(home.snapshots_folder)) as views,
                suppress(GenerationError),
                home.catalogue.read() as session,
            ):
                current, sequence = get_generation(session, generation.id)
                views.save(session, current, sequence)


@dataclass(slots=True)
class PendingErasure:
    """An erasure in a file of the home, from before the first row is removed until the last file is.

    Attributes:
        path: The file.
        collection: Name of the collection.
        ids: Ids of the images.
        digests: SHA-256 of their files.
        people: Patients and studies whose reports are also removed.
        jobs: Numbers of the jobs that name none of them any more.
    """

    path: Path
    collection: str
    ids: list[str]
    digests: list[str]
    people: People = NOBODY
    jobs: set[int] = field(default_factory=set)

    @classmethod
    def begin(
        cls, home: Path, session: Session, collection: str, ids: Sequence[str], people: People = NOBODY
    ) -> Self:
        """Note an erasure before it begins, within `keep_others_away`; one of nothing needs no note."""
        # No image has an id that a database cannot hold.
        ids = [name for name in ids if storable_text(name)]
        there = images_named(session, require_collection(session, collection).id, ids)
        digests = [row.sha256 for row in there.values()]
        folder = home / _FOLDER
        begun = cls(folder / f"{secrets.token_hex(8)}.json", collection, ids, digests, people)
        if ids or people != NOBODY:
            begun.save()
        return begun

    def save(self) -> None:
        """Write it to the disk."""
        values = {
            "collection": self.collection,
            "ids": self.ids,
            "digests": self.digests,
            "patients": self.people.patients,
            "studies": self.people.studies,
            "jobs": sorted(self.jobs),
        }
        with atomic_file(self.path) as file:
            file.write(json.dumps(values).encode())

    def end(self) -> None:
        """Delete the record: nothing is left to remove."""
        self.path.unlink(missing_ok=True)

    def erased_ids(self, session: Session) -> list[str]:
        """Return those of the ids that the collection has no image of."""
        there = images_named(session, require_collection(session, self.collection).id, self.ids)
        return [name for name in self.ids if name not in there]


@contextmanager
def keep_others_away(home: Path) -> Iterator[None]:
    """Let no other process or thread erase images of a home while the block runs.

    Raises:
        CollectionInUseError: One does.
        OSError: The folder of the notes cannot be used.
    """
    folder = home / _FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        if not try_lock(descriptor):
            raise CollectionInUseError("Other images are being erased: send this again when they are.")
        yield
    finally:
        os.close(descriptor)


def pending_erasures(home: Path) -> Iterator[PendingErasure]:
    """Yield the erasures of a home that were not finished, or are under way."""
    for path in sorted((home / _FOLDER).glob("*.json")):
        values = json.loads(path.read_bytes())
        people = People(tuple(values["patients"]), tuple(values["studies"]))
        yield PendingErasure(
            path, values["collection"], values["ids"], values["digests"], people, set(values["jobs"])
        )


def _forms(key: bytes, kind: str, value: str) -> tuple[str, ...]:
    hashed = keyed_hash(key, kind, value)
    return (value, hashed) if _HASH.fullmatch(value) else (hashed,)
