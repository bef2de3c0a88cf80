"""Registered bundles: copies that stay, whatever becomes of the folder that training wrote."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from index.catalogue.collections import Generation
from index.catalogue.disk_full import is_disk_full
from index.catalogue.tables import ModelRow
from index.errors import DiskFullError
from index.files.unused_bundles import changing_models
from training.atomic import atomic_folder
from training.errors import BundleError
from training.models.bundle import BundleInfo, read_bundle


def install_bundle(info: BundleInfo, bundles_folder: Path) -> BundleInfo:
    """Copy a bundle to `bundles_folder/<digest>`; a whole copy that is there is left alone.

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
    found = session.execute(registered).scalar_one_or_none()
    if found is not None:
        return found
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
    for path in (*target.rglob("*"), target):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
