"""Removal of images and of whole collections from the catalogue, and of files that nothing uses any more."""

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import sleep
from typing import Any, Final

from sqlalchemy import delete, exists, func, insert, select, update
from sqlalchemy.orm import Session

from index.catalogue import PAUSE_SECONDS, Catalogue
from index.catalogue.collections import (
    NOT_DELETED,
    TARGETS,
    Target,
    lock_collection,
    next_sequence,
    require_collection,
)
from index.catalogue.full_text import remove_words
from index.catalogue.lookup import AT_ONCE, images_named, parts
from index.catalogue.tables import (
    AttributeRow,
    CollectionRow,
    FieldRow,
    FormerNameRow,
    GenerationRow,
    ImageRow,
    RemovalRow,
    TextRow,
)
from index.errors import StaleWriteError
from index.files.bundles import remove_unused
from index.files.orphans import collect_orphans, mark_orphans
from index.filters.grammar import Filter
from index.filters.passing import passing_keys
from index.home import Home
from index.reports import remove_reports, studies_of
from index.writes.images import remove_texts

# A snapshot's folder begins with its generation's uid.
_UID_LENGTH: Final = 32
# Removals that stay, of the images and of the texts of each collection.
_MAX_REMOVALS: Final = 100_000
_AT_ONCE: Final = 10_000
_UNUSED: Final[Any] = ~exists().where(
    AttributeRow.collection_id == FieldRow.collection_id,
    AttributeRow.name == FieldRow.name,
    AttributeRow.kind == FieldRow.kind,
)


def delete_images(session: Session, collection: str, ids: Sequence[str]) -> dict[str, str]:
    """Remove images with all that belongs to them, in every generation; their files are noted as orphans.

    It is done in the caller's transaction.

    Returns:
        Those that were there by id, with the digest of their file.
    """
    collection_id = require_collection(session, collection).id
    sequence = next_sequence(session, collection_id)
    return _delete(session, collection_id, sequence, list(images_named(session, collection_id, ids).values()))


@dataclass(frozen=True, slots=True)
class Matching:
    """Images of a collection that passed a filter at one moment.

    Attributes:
        collection_id: Key of the collection.
        sequence: Sequence number of the collection at that moment.
        keys: Keys of the images, rising.
    """

    collection_id: int
    sequence: int
    keys: list[int]


def find_matching(session: Session, collection: str, filter: Filter) -> Matching:
    """Find the images that pass a filter."""
    row = require_collection(session, collection)
    return Matching(row.id, row.sequence, passing_keys(session, row.id, filter).tolist())


def ids_of(session: Session, keys: Sequence[int]) -> list[str]:
    """Return the ids of existing images, in the order of their keys."""
    query = select(ImageRow.external_id).where(ImageRow.id.in_(keys)).order_by(ImageRow.id)
    return list(session.execute(query).scalars())


def delete_unchanged(session: Session, matching: Matching, keys: Sequence[int]) -> dict[str, str]:
    """Remove the matching images that haven't changed since they were found.

    All is done in the caller's transaction, as by `delete_images`.

    Returns:
        The removed ones by id, with the digest of their file.
    """
    sequence = next_sequence(session, matching.collection_id)
    query = select(ImageRow.id, ImageRow.external_id, ImageRow.sha256).where(
        ImageRow.collection_id == matching.collection_id,
        ImageRow.id.in_(keys),
        ImageRow.sequence <= matching.sequence,
    )
    return _delete(session, matching.collection_id, sequence, session.execute(query).all())


def remove_hidden(catalogue: Catalogue) -> None:
    """Remove all deleted collections, batch by batch; their files are noted as orphans."""
    with catalogue.read() as session:
        hidden = session.execute(select(CollectionRow.id).where(~NOT_DELETED)).scalars().all()
    for collection_id in hidden:
        while _remove_batch(catalogue, collection_id):
            sleep(PAUSE_SECONDS)


def _remove_batch(catalogue: Catalogue, collection_id: int) -> bool:
    """Remove some images of a collection, or itself if it has none; return whether there is more of it."""
    ours = ImageRow.collection_id == collection_id
    with catalogue.write() as session:
        # Another process may be removing the same.
        lock_collection(session, collection_id)
        rows = session.execute(select(ImageRow.id, ImageRow.sha256).where(ours).limit(AT_ONCE)).all()
        if rows:
            keys = [row.id for row in rows]
            mark_orphans(session, {row.sha256 for row in rows})
            remove_words(session, keys)
            # Texts, attributes and embeddings go with their images.
            session.execute(delete(ImageRow).where(ImageRow.id.in_(keys)))
            return True
        for table in (RemovalRow, FieldRow, GenerationRow, FormerNameRow):
            session.execute(delete(table).where(table.collection_id == collection_id))
        session.execute(delete(CollectionRow).where(CollectionRow.id == collection_id))
    return False


def _delete(session: Session, collection_id: int, sequence: int, images: Sequence[Any]) -> dict[str, str]:
    for part in parts(images):
        keys = [row.id for row in part]
        texts = session.execute(select(TextRow.id).where(TextRow.image_id.in_(keys))).scalars().all()
        remove_texts(session, collection_id, sequence, texts)
        remove_words(session, keys)
        studies = studies_of(session, collection_id, keys)
        session.execute(delete(ImageRow).where(ImageRow.id.in_(keys)))
        remove_reports(session, collection_id, studies)
        removal = {"collection_id": collection_id, "target": "images", "sequence": sequence}
        session.execute(insert(RemovalRow), [{**removal, "key": key} for key in keys])
        mark_orphans(session, {row.sha256 for row in part})
    return {row.external_id: row.sha256 for row in images}


def collect_garbage(home: Home) -> None:
    """Remove rows of deleted collections, unused files, bundles and fields, and orphaned snapshots.

    The log of removals is trimmed.

    While a backup is written, files of images and bundles stay until the next time.
    """
    remove_hidden(home.catalogue)
    collect_orphans(home.catalogue, home.store)
    remove_unused(home.catalogue, home.store, home.bundles_folder)
    snapshots = home.snapshots_folder
    # First the folders: the generation of one that is made now is in the catalogue already.
    folders = list(snapshots.iterdir()) if snapshots.is_dir() else []
    with home.catalogue.read() as session:
        uids = set(session.execute(select(GenerationRow.uid)).scalars())
    for folder in folders:
        if folder.name[:_UID_LENGTH] not in uids:
            # Another process may remove it at the same time; what cannot be removed does no harm.
            with suppress(OSError):
                shutil.rmtree(folder)
    # Last, since it frees little space.
    remove_unused_fields(home.catalogue)
    _trim_removals(home.catalogue)


def remove_unused_fields(catalogue: Catalogue) -> None:
    """Remove the fields of all collections that no image has a value of."""
    query = select(FieldRow.collection_id).join(CollectionRow, CollectionRow.id == FieldRow.collection_id)
    with catalogue.read() as session:
        # Most often there are none, and nobody has to wait for a lock.
        collections = session.execute(query.where(NOT_DELETED, _UNUSED).distinct()).scalars().all()
    for collection_id in collections:
        # A collection that was removed meanwhile takes its fields with it.
        with suppress(StaleWriteError), catalogue.write() as session:
            # Writers of attributes take this number first.
            next_sequence(session, collection_id)
            session.execute(
                delete(FieldRow)
                .where(FieldRow.collection_id == collection_id, _UNUSED)
                .execution_options(synchronize_session=False)
            )


def _trim_removals(catalogue: Catalogue) -> None:
    """Forget all but the latest 100,000 removals of each collection: views further behind are read again."""
    for target in TARGETS:
        for_target = select(RemovalRow.collection_id).where(RemovalRow.target == target)
        long = for_target.group_by(RemovalRow.collection_id).having(func.count() > _MAX_REMOVALS)
        with catalogue.read() as session:
            collections = session.execute(long).scalars().all()
        for collection_id in collections:
            while _trim_batch(catalogue, collection_id, target):
                sleep(PAUSE_SECONDS)


def _trim_batch(catalogue: Catalogue, collection_id: int, target: Target) -> bool:
    """Forget some removals; return whether there were too many."""
    ours = (RemovalRow.collection_id == collection_id, RemovalRow.target == target)
    with catalogue.write() as session:
        lock_collection(session, collection_id)
        count = session.execute(select(func.count()).where(*ours)).scalar_one()
        if count <= _MAX_REMOVALS:
            return False
        oldest = select(RemovalRow.sequence).where(*ours).order_by(RemovalRow.sequence)
        last = session.execute(oldest.offset(min(count - _MAX_REMOVALS, _AT_ONCE) - 1).limit(1)).scalar_one()
        session.execute(delete(RemovalRow).where(*ours, RemovalRow.sequence <= last))
        # Images and texts have one number: the later of the two.
        behind = update(CollectionRow).where(CollectionRow.id == collection_id, CollectionRow.trimmed < last)
        session.execute(behind.values(trimmed=last))
    return True
