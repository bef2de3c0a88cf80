"""Garbage collection: orphaned files and snapshots, unused bundles, and fields without values."""

import shutil
from contextlib import suppress
from typing import Final

from sqlalchemy import select

from index.catalogue.tables import GenerationRow
from index.files.bundles import remove_unused
from index.files.orphans import collect_orphans
from index.home import Home
from index.writes.deletion import remove_hidden
from index.writes.trim import trim_removals
from index.writes.unused_fields import remove_unused_fields

# A snapshot's folder begins with its generation's uid.
_UID_LENGTH: Final = 32


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
    trim_removals(home.catalogue)
