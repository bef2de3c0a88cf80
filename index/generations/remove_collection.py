"""The removal of a whole collection."""

import logging

from index.catalogue.collections import hide_collection
from index.engine import SearchEngine
from index.writes.garbage import collect_garbage
from training.errors import RecoquestError

_log = logging.getLogger(__name__)


def remove_collection(engine: SearchEngine, collection: str) -> None:
    """Remove a collection with its images, generations and snapshots, and what this process holds of it.

    The collection is hidden at once. What fails after that is done by the next garbage collection.

    Raises:
        UnknownCollectionError: No collection has this name.
        DiskFullError: The disk has no space left; nothing is removed.
    """
    with engine.home.catalogue.write() as session:
        hide_collection(session, collection)
    collect_removed(engine)


def collect_removed(engine: SearchEngine) -> None:
    """Free what this process and the home hold of collections that are hidden; what fails is done later."""
    try:
        engine.forget_removed()
        collect_garbage(engine.home)
    except RecoquestError as error:
        _log.warning("what a removed collection left is not removed yet: %s", error)
