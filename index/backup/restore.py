"""Restoring a backup on a machine where nothing is indexed."""

import hashlib
import shutil
import tarfile
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Final

from pydantic import ValidationError
from sqlalchemy import select
from sqlalchemy.orm import Session

from index.audit.chain import KEY_FILE as AUDIT_KEY
from index.audit.chain import find_head
from index.backup.contents import (
    AUDIT_SETTING,
    CATALOGUE,
    FORMAT,
    KEYS,
    SUMMARY,
    Summary,
    bring_keys,
    bundle_file_of,
    copy_rows,
    count_rows,
    digest_of,
    image_of,
    last_image,
    note_backup,
    working_folder,
)
from index.catalogue import open_catalogue
from index.catalogue.tables import CollectionRow, GenerationRow, ModelRow
from index.errors import BackupError
from index.files.bundles import changing_models, check_digest, install_bundle
from index.files.image_store import WRITES_AT_ONCE
from index.files.orphans import forget_used, mark_orphans
from index.home import Home
from training.common.progress import progress_bar
from training.models.bundle import read_bundle

_MAX_SUMMARY_BYTES: Final = 1 << 30
_NOTED_AT_ONCE: Final = 500


def restore_backup(
    home: Home,
    path: Path,
    *,
    keys: Mapping[str, bytes] | None = None,
    passphrase: str | None = None,
    show_progress: bool = True,
) -> Summary:
    """Bring back what a backup holds, into a catalogue in which there is nothing.

    Every file is compared with its digest. The catalogue comes last, in one transaction: until then nothing
    can be searched, and an interrupted restore can be repeated. The next garbage collection removes files of
    images that a stopped restore left. Meanwhile no other process removes files of images or bundles.
    Generations get new uids: snapshots and cursors made since the backup are of images that are lost, whose
    keys and sequence numbers others will get.

    Args:
        home: Home to restore into; its catalogue may be in another database than the one backed up.
        path: Path of the backup.
        keys: Secrets that the home has, by name. Those that the backup needs and the home lacks are written
            from it, or refuse the restore; None: any will do.
        passphrase: Passphrase by which the backup has them.
        show_progress: Show a bar on standard error.

    Raises:
        BackupError: The backup is not whole or of a newer version, the catalogue is not empty, a secret is
            missing, or another process restores into the same home.
    """
    with home.catalogue.read() as session:
        _refuse_full(session, home.catalogue.url)
    if keys is not None:
        with home.catalogue.read() as session:
            # A trail that the home has stays, and its key with it.
            own = (AUDIT_KEY, AUDIT_SETTING) if find_head(session) is not None else ()
        bring_backup_keys(path, keys, passphrase, home.bundles_folder.parent, own)
    home.bundles_folder.parent.mkdir(parents=True, exist_ok=True)
    with (
        _opened(path) as tar,
        working_folder(home.bundles_folder.parent / ".restore") as scratch,
        # No image uses what is put into the store before the catalogue is there.
        home.store.keeping(),
    ):
        summary = _take_files(tar, path, home, scratch, show_progress)
        with changing_models(home.bundles_folder):
            for digest in summary.bundles:
                folder = scratch / "bundles" / digest
                install_bundle(check_digest(read_bundle(folder), digest), home.bundles_folder)
            _take_catalogue(home, scratch / CATALOGUE, show_progress)
    with home.catalogue.write() as session:
        note_backup(session, path, summary, last_image(session))
    return summary


def _refuse_full(session: Session, url: str) -> None:
    for table in (CollectionRow, ModelRow):
        if session.execute(select(table.id).limit(1)).first() is not None:
            raise BackupError(
                f"The catalogue {url} is not empty: restore into another --home, or another database."
            )


def bring_backup_keys(
    path: Path, keys: Mapping[str, bytes], passphrase: str | None, folder: Path, own: Collection[str] = ()
) -> None:
    """Write the secrets that a backup needs and a home lacks, or raise BackupError; see `bring_keys`."""
    lacking: list[str] = []
    other = ", or set RECOQUEST_BACKUP_PASSPHRASE if the backup has one"
    with _opened(path) as tar:
        first = tar.next()
        content = None if first is None else tar.extractfile(first)
        if first is not None and content is not None and first.name == KEYS:
            lacking = bring_keys(content.read(_MAX_SUMMARY_BYTES), keys, passphrase, folder, own)
        elif first is not None and first.name.startswith("bundles/") and _target_path(first.name):
            # Earlier versions noted none; most homes had a trail.
            lacking = [] if {AUDIT_KEY, AUDIT_SETTING} & {*own, *keys} else [AUDIT_KEY]
            other = f", or set {AUDIT_SETTING} as it was there"
    if lacking:
        files = " and ".join(name for name in lacking if name != AUDIT_SETTING)
        steps = [f"Bring {files} of the home that was backed up into {folder} first{other}"] if files else []
        if AUDIT_SETTING in lacking:
            steps.append(f"Set {AUDIT_SETTING} as it was in the home that was backed up")
        raise BackupError(
            f"{'. '.join(steps)}: with other keys, the audit trail cannot be verified, and patients get "
            "other pseudonyms. If they are lost, give --without-keys."
        )


@contextmanager
def _opened(path: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(path, "r:") as tar:
            yield tar
    except tarfile.TarError as error:
        raise BackupError(f"{path} is no whole backup: {error}.") from error


def _take_files(tar: tarfile.TarFile, path: Path, home: Home, scratch: Path, show_progress: bool) -> Summary:
    """Put images into the store and all else into `scratch`; return what should have been there."""
    images = 0
    waiting: list[bytes] = []
    others: dict[str, str] = {}
    summary: Summary | None = None
    with progress_bar("Restoring files", None, shown=show_progress) as bar:
        for member in _noted(tar, home):
            content = tar.extractfile(member)
            if content is None or summary is not None:
                raise BackupError(f"{path} holds {member.name!r}, which no backup of recoquest does.")
            sha256 = image_of(member.name)
            if sha256 is not None:
                waiting.append(content.read())
                if hashlib.sha256(waiting[-1]).hexdigest() != sha256:
                    raise BackupError(f"{path} is damaged: the image {sha256} in it has other bytes.")
                images += 1
                if len(waiting) == WRITES_AT_ONCE:
                    home.store.put_all(waiting)
                    waiting.clear()
            elif member.name == SUMMARY:
                summary = _read_summary(path, content.read(_MAX_SUMMARY_BYTES))
            else:
                target = scratch / _target_path(member.name)
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("xb") as file:
                    shutil.copyfileobj(content, file)
                others[member.name] = digest_of(target)
            bar.advance()
    home.store.put_all(waiting)
    if summary is None:
        raise BackupError(f"{path} is no whole backup: it was cut off.")
    wrong = sorted(
        name for name in others.keys() | summary.files.keys() if others.get(name) != summary.files.get(name)
    )
    if wrong or images != summary.images:
        raise BackupError(
            f"{path} is damaged: {wrong[0] if wrong else 'an image'} is missing or has other bytes."
        )
    return summary


def _noted(tar: tarfile.TarFile, home: Home) -> Iterator[tarfile.TarInfo]:
    """Walk over the members, with the files of images noted as orphans before they come."""
    members = iter(tar)
    while some := list(islice(members, _NOTED_AT_ONCE)):
        with home.catalogue.write() as session:
            mark_orphans(
                session, {sha256 for member in some if (sha256 := image_of(member.name)) is not None}
            )
        yield from some


def _target_path(member: str) -> Path:
    return Path(member) if member in (CATALOGUE, KEYS) else Path("bundles", *bundle_file_of(member))


def _read_summary(path: Path, content: bytes) -> Summary:
    try:
        summary = Summary.model_validate_json(content)
    except ValidationError as error:
        raise BackupError(f"{path} is no backup that this version reads: update recoquest.") from error
    if summary.format != FORMAT:
        raise BackupError(f"{path} was written by recoquest {summary.version}: update recoquest to read it.")
    return summary


def _take_catalogue(home: Home, copy: Path, show_progress: bool) -> None:
    source = open_catalogue(f"sqlite:///{copy}")
    try:
        with source.read() as reading, home.catalogue.write() as writing:
            # Somebody may have indexed something since this began.
            _refuse_full(writing, home.catalogue.url)
            with progress_bar("Restoring the catalogue", count_rows(reading), shown=show_progress) as bar:
                copy_rows(reading, writing, bar)
            for generation in writing.execute(select(GenerationRow)).scalars():
                generation.uid = uuid.uuid4().hex
            forget_used(writing)
    finally:
        source.close()
