"""Garbage collection: orphaned files and snapshots, unused bundles, fields without values, old removals."""

import shutil
from contextlib import suppress
from time import sleep
from typing import Any, Final

from sqlalchemy import delete, exists, func, select, update

from index.catalogue import PAUSE_SECONDS, Catalogue
from index.catalogue.collections import NOT_DELETED, TARGETS, Target, lock_collection, next_sequence
from index.catalogue.tables import AttributeRow, CollectionRow, FieldRow, GenerationRow, RemovalRow
from index.errors import StaleWriteError
from index.files.bundles import remove_unused
from index.files.orphans import collect_orphans
from index.home import Home
from index.writes.deletion import remove_hidden

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


def collect_garbage(home: Home) -> None:
    """Remove rows of deleted collections, unused files, bundles and fields, and orphaned snapshots.

    The log of removals is trimmed.

    While a backup is written, files of images and bundles stay until the next time.

    Raises:
        CatalogueError: The catalogue cannot be used.
        DiskFullError: The disk has no space left for the catalogue.
        StoreError: The disk does not let go of a file.
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
    """Remove the fields of all collections that no image has a value of.

    Raises:
        CatalogueError: The catalogue cannot be used.
        DiskFullError: The disk has no space left for the catalogue.
    """
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
    """Forget all but the latest 100,000 removals of each collection: views further behind are read anew."""
    for target in TARGETS:
        of_target = select(RemovalRow.collection_id).where(RemovalRow.target == target)
        long = of_target.group_by(RemovalRow.collection_id).having(func.count() > _MAX_REMOVALS)
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
