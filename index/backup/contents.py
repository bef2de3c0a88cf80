"""Contents of a backup file, their paths, and the record by which an erasure names it.

It is a tar file: first what its restore needs, then the files of bundles and images, the catalogue, and
finally its table of contents, so that a truncated file is recognized.
"""

import hashlib
import hmac
import json
import os
import re
import shutil
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from pydantic import BaseModel, ConfigDict
from sqlalchemy import Table, delete, func, insert, select, text
from sqlalchemy.orm import Session

from index.audit.chain import KEY_FILE as AUDIT_KEY
from index.audit.chain import find_head
from index.catalogue import tables
from index.catalogue.full_text import add_stored_words
from index.catalogue.schema import DerivedRow
from index.catalogue.tables import AuditEventRow, AuditHeadRow, AuditNameRow, BackupRow, ImageRow
from index.errors import BackupError
from index.files.stale import try_lock
from training.common.atomic import atomic_file
from training.common.progress import ProgressBar

# Between making a folder and locking it, its last owner may remove it.
_TRIES: Final = 100
KEYS: Final = "keys.json"
CATALOGUE: Final = "catalogue.sqlite3"
SUMMARY: Final = "backup.json"
FORMAT: Final = 1
_IMAGE: Final = re.compile(r"images/([0-9a-f]{64})")
_NAME: Final = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
_BUNDLE_FILE: Final = re.compile(rf"bundles/({_NAME})/({_NAME}(?:/{_NAME})*)")
_AT_ONCE: Final = 2000
# Orphans belong to one store, the identity to one home, no other machine may continue a job, answers tell of
# writes that a restore undoes, and words are made again.
_LEFT_OUT: Final = tuple(
    table.__tablename__
    for table in (
        tables.OrphanRow,
        tables.HomeRow,
        tables.JobRow,
        tables.IdempotencyKeyRow,
        tables.VocabularyRow,
    )
)
_TRAIL: Final = tuple(table.__tablename__ for table in (AuditEventRow, AuditHeadRow, AuditNameRow))
# Tables that count their keys, and what removals call the keys that are gone.
_COUNTED: Final = {"images": "images", "texts": "texts", "generations": None, "models": None, "reports": None}
# The name of an audit key that is a setting, and not carried.
AUDIT_SETTING: Final = "RECOQUEST_AUDIT_KEY"
WITHOUT_KEYS: Final = '{"fingerprints": {}, "sealed": null}'
_SALT_BYTES: Final = 16
_NONCE_BYTES: Final = 12
_PURPOSE: Final = b"recoquest backup"


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


def image_of(member: str) -> str | None:
    """Return the digest of the image that a file is of; None for other files."""
    match = _IMAGE.fullmatch(member)
    return None if match is None else match[1]


def bundle_file_of(member: str) -> tuple[str, str]:
    """Return the digest of the bundle that a file belongs to, and its path there.

    Raises:
        BackupError: The name is not that of a bundle's file, or points outside of the bundle.
    """
    match = _BUNDLE_FILE.fullmatch(member)
    if match is None:
        raise BackupError(f"The backup holds {member!r}, which no backup of recoquest does: it is not used.")
    return match[1], match[2]


def last_image(session: Session) -> int:
    """Return the highest key of an image, 0 without any."""
    return session.execute(select(func.max(ImageRow.id))).scalar() or 0


def note_backup(session: Session, path: Path, summary: Summary, last: int) -> None:
    """Note a backup, in the caller's transaction."""
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


def count_rows(session: Session) -> int:
    """Return how many rows `copy_rows` copies."""
    return sum(session.execute(select(func.count()).select_from(table)).scalar_one() for table in _tables())


def copy_rows(source: Session, target: Session, bar: ProgressBar) -> None:
    """Copy all rows into a catalogue that is empty, and make its full-text index."""
    # A home that was used before has its own trail, which isn't mixed with another.
    left = _TRAIL if find_head(target) is not None else ()
    for table in _tables():
        if table.name in left:
            continue
        if table.name == DerivedRow.__tablename__:
            # Findings are copied, under any rules.
            target.execute(delete(table))
        rows_of_table = source.execute(select(table).execution_options(yield_per=_AT_ONCE))
        for rows in rows_of_table.mappings().partitions():
            target.execute(insert(table), [dict(row) for row in rows])
            bar.advance(len(rows))
    images = target.execute(select(tables.ImageRow.id).order_by(tables.ImageRow.id)).scalars().all()
    for start in range(0, len(images), _AT_ONCE):
        add_stored_words(target, images[start : start + _AT_ONCE])
    for table in _tables():
        if table.name in _COUNTED:
            _count_on(target, table)


def _tables() -> Sequence[Table]:
    """Return the tables that a backup holds, each behind those it refers to."""
    return [table for table in tables.Table.metadata.sorted_tables if table.name not in _LEFT_OUT]


def _count_on(session: Session, table: Table) -> None:
    """Make sure that a table never reuses a key, not even of removed rows."""
    last = session.execute(select(func.max(table.c.id))).scalar() or 0
    removed = _COUNTED[table.name]
    if removed is not None:
        keys = select(func.max(tables.RemovalRow.key)).where(tables.RemovalRow.target == removed)
        last = max(last, session.execute(keys).scalar() or 0)
    if not last:
        return
    values = {"name": table.name, "last": last}
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT setval(pg_get_serial_sequence(:name, 'id'), :last)"), values)
    elif table.dialect_options["sqlite"]["autoincrement"]:
        session.execute(text("DELETE FROM sqlite_sequence WHERE name = :name"), values)
        session.execute(text("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :last)"), values)


def sealed_keys(keys: Mapping[str, bytes], passphrase: str | None) -> str:
    """Return, as JSON, fingerprints of secrets by name, and the secrets encrypted by a passphrase, if any."""
    sealed = None
    if passphrase is not None:
        salt, nonce = os.urandom(_SALT_BYTES), os.urandom(_NONCE_BYTES)
        files = {name: key.hex() for name, key in keys.items() if name != AUDIT_SETTING}
        content = json.dumps(files).encode()
        sealed = salt + nonce + _cipher(passphrase, salt).encrypt(nonce, content, _PURPOSE)
    return json.dumps(
        {
            "fingerprints": {name: _fingerprint(key) for name, key in keys.items()},
            "sealed": None if sealed is None else b64encode(sealed).decode(),
        }
    )


def bring_keys(
    written: bytes,
    keys: Mapping[str, bytes],
    passphrase: str | None,
    folder: Path,
    passed_over: Collection[str] = (),
) -> list[str]:
    """Write the secrets that a backup needs and a home lacks into its folder; or return names of others.

    Raises:
        BackupError: The passphrase is another one, what is written is damaged, or the home has another key of
            patients.
    """
    try:
        parsed = json.loads(written)
        needed, sealed = dict(parsed["fingerprints"]), parsed["sealed"] and b64decode(parsed["sealed"])
    except (ValueError, LookupError, TypeError) as error:
        raise BackupError("The backup is damaged: its keys are unreadable.") from error
    fingerprints = {name: _fingerprint(key) for name, key in keys.items()}
    lacking = [
        name for name, value in needed.items() if fingerprints.get(name) != value and name not in passed_over
    ]
    if not lacking or not sealed or passphrase is None:
        return lacking
    salt, nonce, content = sealed[:_SALT_BYTES], sealed[_SALT_BYTES:][:_NONCE_BYTES], sealed[_SALT_BYTES:]
    try:
        opened = _cipher(passphrase, salt).decrypt(nonce, content[_NONCE_BYTES:], _PURPOSE)
    except InvalidTag:
        raise BackupError(
            "The passphrase is not that of the backup: set RECOQUEST_BACKUP_PASSPHRASE."
        ) from None
    files = {name: key for name, key in json.loads(opened).items() if name in lacking}
    # Without a trail, nothing was written with an audit key; films have pseudonyms by the other.
    if others := [name for name in files if name in keys and name != AUDIT_KEY]:
        raise BackupError(
            f"{folder} has another {others[0]} than the home that was backed up, and a restore would replace "
            "it: move it away, or restore into another --home."
        )
    if others := [name for name in lacking if name not in files]:
        return others
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, key in files.items():
        with atomic_file(folder / Path(name).name, private=True) as file:
            file.write(key.encode())
    return []


def _cipher(passphrase: str, salt: bytes) -> AESGCM:
    return AESGCM(Scrypt(salt, length=32, n=1 << 15, r=8, p=1).derive(passphrase.encode()))


def _fingerprint(key: bytes) -> str:
    return hmac.new(key, _PURPOSE, "sha256").hexdigest()
