"""What is of no use any more and lies on the disk still, because a process was killed before removing it."""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

from sqlalchemy import select

from index.catalogue import Catalogue
from index.catalogue.tables import GenerationRow
from index.loose_files import remove_loose
from index.store import ImageStore

# A snapshot's folder begins with its generation's uid.
_UID_LENGTH: Final = 32


def remove_leftovers(catalogue: Catalogue, store: ImageStore, snapshots: Path) -> None:
    """Remove files that no image uses, and snapshots of generations that are gone.

    Raises:
        CatalogueError: The catalogue cannot be used.
        DiskFullError: The disk has no space left for the catalogue.
        StoreError: The disk does not let go of a file.
    """
    remove_loose(catalogue, store)
    # First the folders: the generation of one that is made now is in the catalogue already.
    folders = list(snapshots.iterdir()) if snapshots.is_dir() else []
    with catalogue.read() as session:
        uids = set(session.execute(select(GenerationRow.uid)).scalars())
    for folder in folders:
        if folder.name[:_UID_LENGTH] not in uids:
            # Another process may remove it at the same time; what cannot be removed does no harm.
            with suppress(OSError):
                shutil.rmtree(folder)
