"""Writes a backup while searches and writes continue."""

import hashlib
import io
import logging
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from sqlalchemy import Row, func, select
from sqlalchemy.orm import Session

from index.backup.contents import (
    CATALOGUE,
    KEYS,
    SUMMARY,
    WITHOUT_KEYS,
    Summary,
    copy_rows,
    count_rows,
    digest_of,
    last_image,
    note_backup,
    working_folder,
)
from index.catalogue import Catalogue, open_catalogue
from index.catalogue.collections import NOT_DELETED, now
from index.catalogue.connections import is_disk_full
from index.catalogue.tables import CollectionRow, GenerationRow, ImageRow, ModelRow
from index.errors import BackupError, DiskFullError, StoreError
from index.files.bundles import check_digest
from index.home import Home
from index.writes.deletion import collect_garbage
from training.common.atomic import atomic_file, sync
from training.common.errors import BundleError, RecoquestError
from training.common.progress import progress_bar
from training.models.bundle import read_bundle

_log = logging.getLogger(__name__)


def write_backup(home: Home, path: Path, *, keys: str = WITHOUT_KEYS, show_progress: bool = True) -> Summary:
    """Write everything that can be searched into one file, as it was when this began.

    The file appears when it is whole; leftovers of a killed backup to the same path are removed. Files of
    images, and encoders, that are removed meanwhile stay until it is written.

    Args:
        home: Home to back up; searches and writes may continue.
        path: The file; its folder must have room for the catalogue twice.
        keys: Secrets that a restored home needs, as `sealed_keys` gives them.
        show_progress: Show a bar on standard error.

    Raises:
        BackupError: The file exists already, another process is writing it, or the files of an encoder
            that is in use are missing or damaged.
        DiskFullError: The file's folder has no room for it.
    """
    part = path.with_name(f".{path.name}.part")
    with home.store.keeping(), _full_disk_named(path), working_folder(part) as folder:
        if path.exists():
            raise BackupError(f"{path} exists already: give the backup another name.")
        copy, written = folder / CATALOGUE, folder / path.name
        catalogue = open_catalogue(f"sqlite:///{copy}")
        try:
            with (
                home.catalogue.read() as reading,
                catalogue.write() as writing,
                progress_bar("Copying the catalogue", count_rows(reading), shown=show_progress) as bar,
            ):
                copy_rows(reading, writing, bar)
            with (
                atomic_file(written, private=True) as file,
                tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar,
            ):
                _add_text(tar, KEYS, keys)
                summary = _add_files(tar, home, catalogue, show_progress)
                summary.files[KEYS] = hashlib.sha256(keys.encode()).hexdigest()
                with catalogue.read() as session:
                    last = last_image(session)
                catalogue.close()
                tar.add(copy, CATALOGUE, filter=_anonymous)
                summary.files[CATALOGUE] = digest_of(copy)
                _add_text(tar, SUMMARY, summary.model_dump_json(indent=2))
        finally:
            catalogue.close()
        written.replace(path)
        sync(path.parent)
    with home.catalogue.write() as session:
        note_backup(session, path, summary, last)
    try:
        collect_garbage(home)
    except RecoquestError as error:
        _log.warning("the removal of files that were deleted during the backup failed: %s", error)
    return summary


@contextmanager
def _full_disk_named(path: Path) -> Iterator[None]:
    """Say of which disk there is no space, where another error names a file on the way to the backup."""
    try:
        yield
    except (DiskFullError, OSError) as error:
        if isinstance(error, OSError) and not is_disk_full(error):
            raise
        raise DiskFullError(
            f"{path} cannot be written: the disk is full; free some space there, or choose another disk."
        ) from error


def _add_files(tar: tarfile.TarFile, home: Home, catalogue: Catalogue, show_progress: bool) -> Summary:
    """Add the files of bundles and images that the copied catalogue names, and return what there is."""
    with catalogue.read() as session:
        uses = _uses(session)
        models = session.execute(select(ModelRow.digest).order_by(ModelRow.id)).scalars().all()
        images = session.execute(select(ImageRow.sha256).distinct().order_by(ImageRow.sha256)).scalars().all()
        counts = (
            select(CollectionRow.name, func.count(ImageRow.id).label("images"))
            .join(ImageRow, ImageRow.collection_id == CollectionRow.id, isouter=True)
            .where(NOT_DELETED)
            .group_by(CollectionRow.id)
            .order_by(CollectionRow.name)
        )
        collections = {row.name: row.images for row in session.execute(counts)}
    files: dict[str, str] = {}
    bundles = []
    for digest in models:
        added = _add_bundle(tar, home.bundles_folder / digest, uses.get(digest))
        if added:
            bundles.append(digest)
            files |= added
    missing = []
    with progress_bar("Copying images", len(images), shown=show_progress) as bar:
        for sha256 in images:
            try:
                path = home.store.path(sha256)
            except StoreError:
                missing.append(sha256)
            else:
                # A restore refuses a file with other bytes, and with it all of the backup.
                if digest_of(path) == sha256:
                    tar.add(path, f"images/{sha256}", filter=_anonymous)
                else:
                    missing.append(sha256)
            bar.advance()
    return Summary(
        version=version("recoquest"),
        created=now(),
        collections=collections,
        images=len(images) - len(missing),
        bundles=bundles,
        files=files,
        missing=missing,
    )


def _uses(session: Session) -> dict[str, Row[str, str, int, str]]:
    """Return by the digest of its bundle one generation that needs it, the active one if there is one."""
    query = (
        select(ModelRow.digest, CollectionRow.name, GenerationRow.id, GenerationRow.state)
        .join(GenerationRow, GenerationRow.model_id == ModelRow.id)
        .join(CollectionRow, CollectionRow.id == GenerationRow.collection_id)
        .where(NOT_DELETED)
        .order_by(GenerationRow.state == "active", GenerationRow.id)
    )
    return {row.digest: row for row in session.execute(query)}


def _add_bundle(tar: tarfile.TarFile, folder: Path, use: Row[str, str, int, str] | None) -> dict[str, str]:
    """Add the files of a bundle; return their digests, none if it is not whole and no generation needs it."""
    try:
        check_digest(read_bundle(folder), folder.name)
    except BundleError as error:
        if use is None:
            return {}
        raise BackupError(_not_whole(folder, use)) from error
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    digests = {}
    for path in files:
        name = f"bundles/{folder.name}/{path.relative_to(folder).as_posix()}"
        tar.add(path, name, filter=_anonymous)
        digests[name] = digest_of(path)
    return digests


def _not_whole(folder: Path, use: Row[str, str, int, str]) -> str:
    wrong = f"The encoder in {folder} is {'damaged' if folder.exists() else 'missing'}, and "
    if use.state == "active":
        return f"{wrong}{use.name!r} is searched with it: put it back, or re-embed with `recoquest reindex`."
    return (
        f"{wrong}generation {use.id} of {use.name!r} was made with it: put it back, or remove the generation "
        f"with `recoquest generations {use.name} --drop {use.id}`."
    )


def _add_text(tar: tarfile.TarFile, name: str, content: str) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content.encode())
    tar.addfile(member, io.BytesIO(content.encode()))


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out who owns the files: another machine has other users."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
