"""Bundles that no registered model names any more: noted before they come to be so, and removed.

Whoever changes which models are registered does so under a lock that all who do so share, from looking at the
files until the catalogue has changed; whoever removes files holds it alone. Only what is noted goes, not all
that no model names: a wrong database that was given by mistake must not cost an encoder.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from sqlalchemy import select

from index.catalogue import Catalogue
from index.catalogue.tables import ModelRow
from index.errors import StoreWriteError
from index.files.file_lock import try_lock
from index.files.image_store import ImageStore
from training.atomic import remove_folder, sync

_NOTE: Final = ".unused"
# Pattern of the folders that `remove_folder` and `atomic_folder` rename for removal.
_ASIDE: Final = ".*.old"


@contextmanager
def changing_models(bundles_folder: Path) -> Iterator[None]:
    """Let no process remove bundles while the block registers models or lets go of them.

    Raises:
        StoreError: The folder cannot be made or opened.
    """
    with _opened(bundles_folder) as folder:
        fcntl.flock(folder, fcntl.LOCK_SH)
        yield


def note_unused(bundles_folder: Path, digest: str) -> None:
    """Note, within `changing_models`, a bundle that no model may name once the transaction has ended.

    Raises:
        StoreError: The disk does not take the note.
    """
    note = bundles_folder / f".{digest}{_NOTE}"
    try:
        note.touch()
        sync(bundles_folder)
    except OSError as error:
        raise StoreWriteError(f"{note} cannot be written: {error.strerror or error}.") from error


def remove_unused(catalogue: Catalogue, store: ImageStore, bundles_folder: Path) -> None:
    """Remove those bundles that were noted and that no model names, unless a backup is being written.

    Raises:
        CatalogueError: The catalogue cannot be used.
        StoreError: The disk does not let go of one; it stays noted.
    """
    if not any(next(bundles_folder.glob(left), None) for left in (f".*{_NOTE}", _ASIDE)):
        return
    with store.removing() as allowed, _alone(bundles_folder) as alone:
        if not (allowed and alone):
            # Notes and renamed folders stay for the next call.
            return
        with catalogue.read() as session:
            named = set(session.execute(select(ModelRow.digest)).scalars())
        for note in bundles_folder.glob(f".*{_NOTE}"):
            _remove_noted(note, named)
        for aside in bundles_folder.glob(_ASIDE):
            # A folder that cannot be removed does no harm.
            with suppress(OSError):
                shutil.rmtree(aside)


def _remove_noted(note: Path, named: set[str]) -> None:
    """Remove the bundle of a note, unless a model names it, and then the note."""
    digest = note.name.removeprefix(".").removesuffix(_NOTE)
    try:
        if digest not in named:
            remove_folder(note.with_name(digest))
        note.unlink()
    except OSError as error:
        raise StoreWriteError(f"{error.filename} cannot be removed: {error.strerror or error}.") from error


@contextmanager
def _alone(bundles_folder: Path) -> Iterator[bool]:
    """Tell whether nobody changes which models there are; nobody begins to before the block ends."""
    with _opened(bundles_folder) as folder:
        yield try_lock(folder)


@contextmanager
def _opened(bundles_folder: Path) -> Iterator[int]:
    try:
        bundles_folder.mkdir(parents=True, exist_ok=True)
        folder = os.open(bundles_folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise StoreWriteError(f"{bundles_folder} cannot be opened: {error.strerror or error}.") from error
    try:
        yield folder
    finally:
        os.close(folder)
