"""Registered bundles: copies that are independent of the folder that training wrote.

Bundles that no registered model names any more are noted before that happens, and removed. Any code that
changes which models are registered does so under a lock that all who do so share, from looking at the files
until the catalogue has changed; removal of files holds it alone. Only noted bundles are removed, not all that
no model names: a wrong database must not cost an encoder.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from index.catalogue import Catalogue
from index.catalogue.collections import Generation
from index.catalogue.connections import is_disk_full
from index.catalogue.tables import ModelRow
from index.errors import DiskFullError, StoreWriteError
from index.files.image_store import ImageStore
from index.files.stale import try_lock
from training.common.atomic import atomic_folder, remove_folder, sync
from training.common.errors import BundleError
from training.models.bundle import BundleInfo, read_bundle

_NOTE: Final = ".unused"
# Pattern of the folders that `remove_folder` and `atomic_folder` rename for removal.
_ASIDE: Final = ".*.old"


def install_bundle(info: BundleInfo, bundles_folder: Path) -> BundleInfo:
    """Copy a bundle to `bundles_folder/<digest>`; an existing complete copy is left alone.

    Raises:
        BundleError: The bundle has changed since it was read, or the disk does not take it.
    """
    target = bundles_folder / info.digest
    if target.exists():
        with suppress(BundleError):
            return check_digest(read_bundle(target), info.digest)
    try:
        with atomic_folder(target, replace=True) as part:
            _copy(info.folder, part)
            if read_bundle(part).digest != info.digest:
                raise BundleError(f"The bundle {info.folder} changed after it was loaded: run this again.")
    except OSError as error:
        # Another process may have put the same bundle there first.
        if not target.exists():
            if is_disk_full(error):
                raise DiskFullError(
                    f"The bundle cannot be copied to {target}: the disk is full; free some space there."
                ) from error
            raise BundleError(
                f"The bundle cannot be copied to {target}: {error.strerror or error}."
            ) from error
    return check_digest(read_bundle(target), info.digest)


@contextmanager
def installed_bundle(info: BundleInfo, bundles_folder: Path) -> Iterator[BundleInfo]:
    """Copy a bundle as `install_bundle` does; nobody removes it before the block has registered it.

    Raises:
        BundleError: The bundle cannot be installed; see `install_bundle`.
        StoreError: The folder cannot be made or opened.
    """
    with changing_models(bundles_folder):
        yield install_bundle(info, bundles_folder)


def registered_bundle(generation: Generation, bundles_folder: Path) -> BundleInfo:
    """Return the bundle that a generation was made with, whole and of its digest.

    Raises:
        BundleError: The bundle is missing or damaged, or its folder holds another one.
    """
    return check_digest(read_bundle(bundles_folder / generation.digest), generation.digest)


def check_digest(info: BundleInfo, digest: str) -> BundleInfo:
    """Return a bundle if it has this digest.

    Raises:
        BundleError: The bundle has another digest.
    """
    if info.digest != digest:
        raise BundleError(
            f"The bundle at {info.folder} has digest {info.digest[:12]}, but {digest[:12]} belongs there: "
            "put the right bundle back, or register it again with `recoquest reindex`."
        )
    return info


def register_bundle(session: Session, info: BundleInfo) -> ModelRow:
    """Return a bundle's row in the catalogue, made if there is none with its digest."""
    registered = select(ModelRow).where(ModelRow.digest == info.digest)
    existing = session.execute(registered).scalar_one_or_none()
    if existing is not None:
        return existing
    row = ModelRow(
        digest=info.digest,
        name=info.name,
        dim=info.dim,
        blades=info.config.blades,
        unsigned=info.config.unsigned,
        recipe=info.recipe,
        created=info.created,
        metrics=dict(info.metrics),
    )
    try:
        with session.begin_nested():
            session.add(row)
    except IntegrityError:
        # Another process has just registered it.
        return session.execute(registered).scalar_one()
    return row


def _copy(source: Path, target: Path) -> None:
    # One by one: copytree would say in words alone that a disk is full.
    for path in sorted(source.rglob("*")):
        copied = target / path.relative_to(source)
        if path.is_dir():
            copied.mkdir()
        else:
            shutil.copyfile(path, copied)


@contextmanager
def changing_models(bundles_folder: Path) -> Iterator[None]:
    """Let no process remove bundles while the block registers models or lets go of them."""
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
    with store.removing() as allowed, _opened(bundles_folder) as folder:
        # Nobody begins to change which models there are before the block ends.
        if not (allowed and try_lock(folder)):
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
