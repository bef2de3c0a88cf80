"""Trims the log of removals: views and caches that are further behind are read anew."""

from time import sleep
from typing import Final

from sqlalchemy import delete, func, select, update

from index.catalogue import PAUSE_SECONDS, Catalogue
from index.catalogue.collections import TARGETS, Target, lock_collection
from index.catalogue.tables import CollectionRow, RemovalRow

# Removals that stay, of the images and of the texts of each collection.
_MAX_REMOVALS: Final = 100_000
_AT_ONCE: Final = 10_000


def trim_removals(catalogue: Catalogue) -> None:
    """Forget the oldest removals of each collection, but for the latest 100,000.

    Raises:
        CatalogueError: The catalogue cannot be used.
        DiskFullError: The disk has no space left for the catalogue.
    """
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
