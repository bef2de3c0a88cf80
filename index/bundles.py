"""Registered bundles: copies that stay, whatever becomes of the folder that training wrote."""

import os
import shutil
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from index.catalogue.tables import ModelRow
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
        try:
            return read_bundle(target)
        except BundleError:
            shutil.rmtree(target)
    try:
        with atomic_folder(target) as part:
            _copy(info.folder, part)
            if read_bundle(part).digest != info.digest:
                raise BundleError(f"The bundle {info.folder} changed after it was loaded: run this again.")
    except OSError as error:
        # Another process may have put the same bundle there first.
        if not target.exists():
            raise BundleError(f"The bundle cannot be copied to {target}: {error.strerror}.") from error
    return read_bundle(target)


def register_bundle(session: Session, info: BundleInfo) -> ModelRow:
    """Return a bundle's row in the catalogue, made if there is none with its digest."""
    row = session.execute(select(ModelRow).where(ModelRow.digest == info.digest)).scalar_one_or_none()
    if row is None:
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
        session.add(row)
        session.flush()
    return row


def _copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target, dirs_exist_ok=True)
    for path in (*target.rglob("*"), target):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
