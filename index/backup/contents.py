"""Contents of a backup file, their places, and the note of it by which an erasure names it.

It is a tar file: first what its restore needs, then the files of bundles and images, the catalogue, and last
of all what should be in it, so that a file that was cut off is known for that.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from index.catalogue.audit_tables import BackupRow
from index.catalogue.tables import ImageRow
from index.errors import BackupError
from index.files.file_lock import try_lock

# Between making a folder and locking it, its last owner may remove it.
_TRIES: Final = 100
KEYS: Final = "keys.json"
CATALOGUE: Final = "catalogue.sqlite3"
SUMMARY: Final = "backup.json"
FORMAT: Final = 1
_IMAGE: Final = re.compile(r"images/([0-9a-f]{64})")
_NAME: Final = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
_BUNDLE_FILE: Final = re.compile(rf"bundles/({_NAME})/({_NAME}(?:/{_NAME})*)")


class Summary(BaseModel):
    """Contents of a backup.

    Attributes:
        format: Version of the file format.
        version: The version of recoquest that wrote it.
        created: Time of the backup in ISO 8601.
        collections: Number of images by name of the collection.
        images: Number of image files.
        bundles: Digests of the encoders.
        files: SHA-256 of every other file, the catalogue's and those of the encoders, by name.
        missing: Digests of image files that the catalogue names and the store did not have whole.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: int = FORMAT
    version: str
    created: str
    collections: dict[str, int]
    images: int
    bundles: list[str]
    files: dict[str, str]
    missing: list[str]


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def image_member(sha256: str) -> str:
    """Return the name of an image's file."""
    return f"images/{sha256}"


def image_of(member: str) -> str | None:
    """Return the digest of the image that a file is of; None for other files."""
    found = _IMAGE.fullmatch(member)
    return None if found is None else found[1]


def bundle_file_of(member: str) -> tuple[str, str]:
    """Return the digest of the bundle that a file belongs to, and its place there.

    Raises:
        BackupError: The name is not that of a bundle's file, or points outside of the bundle.
    """
    found = _BUNDLE_FILE.fullmatch(member)
    if found is None:
        raise BackupError(f"The backup holds {member!r}, which no backup of recoquest does: it is not used.")
    return found[1], found[2]


def last_image(session: Session) -> int:
    """Return the highest key of an image, 0 without any."""
    return session.execute(select(func.max(ImageRow.id))).scalar() or 0


def note_backup(session: Session, path: Path, summary: Summary, last: int) -> None:
    """Note a backup, in the caller's transaction.

    Args:
        session: Session of a transaction.
        path: Path of its file.
        summary: Contents of the backup.
        last: The highest key of an image in it.
    """
    digest = hashlib.sha256(summary.model_dump_json(indent=2).encode()).hexdigest()
    row = BackupRow(digest=digest, path=str(path.absolute()), created=summary.created, last_image=last)
    session.merge(row)


@contextmanager
def working_folder(path: Path) -> Iterator[Path]:
    """Give an empty folder that only this user can read; it is removed at the end.

    Raises:
        BackupError: Another process works in the folder.
    """
    lock = _locked(path)
    try:
        for left in path.iterdir():
            left.unlink() if left.is_symlink() or left.is_file() else shutil.rmtree(left)
        yield path
    finally:
        # Still locked: a process that comes now makes a folder of its own.
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _locked(path: Path) -> int:
    """Make and lock a folder; the lock goes with the process, however that ends."""
    for _ in range(_TRIES):
        path.mkdir(mode=0o700, exist_ok=True)
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        locked = try_lock(lock)
        try:
            if locked and os.path.samestat(os.fstat(lock), path.stat()):
                return lock
        except FileNotFoundError:
            pass
        os.close(lock)
        if not locked:
            break
    raise BackupError(f"Another process is at work in {path}: wait until it has ended.")
