"""Erasure of images from the rows and folders of a collection's jobs."""

import json
import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.jobs.folder import JobFolder
from app.jobs.queue import STUDY, SYNC
from app.settings import Settings
from index.catalogue import Catalogue
from index.catalogue.tables import JobRow
from index.erasure import PendingErasure
from index.errors import CollectionInUseError
from index.home import Home
from training.common.atomic import atomic_file

_GONE: Final = object()
_ERASED: Final = "erased"
_LINES: Final = frozenset({".jsonl", ".ndjson", ".csv", ".tsv", ".txt", ".log"})
_BLOCK: Final = 1 << 20


@dataclass(slots=True)
class ErasedJobs:
    """Jobs and files that named an image.

    Attributes:
        jobs: Numbers of the jobs whose row or folder was changed.
        retrainings: Numbers of the retrainings of the collection: their models have learned from its images.
        left: Files that name an image and cannot be rewritten.
    """

    jobs: list[int] = field(default_factory=list)
    retrainings: list[int] = field(default_factory=list)
    left: list[Path] = field(default_factory=list)


def refuse_running(session: Session, collection: str) -> None:
    """Make sure that no job is at work on a collection.

    Raises:
        CollectionInUseError: One is.
    """
    for row in session.execute(select(JobRow).where(JobRow.state == "running")).scalars():
        if collection in row.arguments:
            raise CollectionInUseError(
                f"Job {row.id} is at work on {collection!r} and may hold the images: wait for its end, or "
                "cancel it first."
            )


def erase_from_jobs(settings: Settings, home: Home, pending: PendingErasure, erased: ErasedJobs) -> None:
    """Remove ids and digests of images from the results and folders of all jobs of a collection.

    Of a JSON document the values that name one go, with the object that they describe; of a file of lines the
    lines; links and files called so go. All other files stay, and are told of where they name one. Jobs that
    took a single study over from an archive forget which: it may be that of the images. A row is changed in a
    transaction of its own, and files outside of any; the folder's lock lets the attempt of a job
    that begins meanwhile wait. After a stop, jobs that are done are not looked at again.

    Args:
        settings: Settings with the place of the folders.
        home: Home of the collection, whose catalogue has no row of the images any more.
        pending: The erasure.
        erased: What was changed is added to it.

    Raises:
        CatalogueError: The catalogue cannot be used.
        CollectionInUseError: A job holds its folder.
        OSError: A file cannot be rewritten.
    """
    with home.catalogue.read() as session:
        # Files that another image shares keep their digest.
        digests = {digest for digest in pending.digests if not home.store.has(digest)}
        names = frozenset({*pending.erased_ids(session), *digests})
        rows = session.execute(
            select(JobRow.id, JobRow.kind, JobRow.state, JobRow.arguments).order_by(JobRow.id)
        )
        jobs = [row for row in rows if pending.collection in row.arguments]
    for row in jobs:
        own = names | _studies_of(row.kind, row.state, row.arguments)
        pattern = _pattern(own)
        if row.kind == "retrain" and row.state == "done" and row.id not in erased.retrainings:
            erased.retrainings.append(row.id)
        if row.id in pending.jobs or not own:
            continue
        # The folder first: the row tells what else is to go from it.
        changed = _erase_from_folders(JobFolder.of(settings, row.id), row.id, own, pattern, erased.left)
        changed |= _erase_from_row(home.catalogue, row.id, own, pattern)
        if changed and row.id not in erased.jobs:
            erased.jobs.append(row.id)
        pending.jobs.add(row.id)
        if changed:
            pending.save()


def _erase_from_row(
    catalogue: Catalogue, job: int, names: frozenset[str], pattern: re.Pattern[bytes]
) -> bool:
    with catalogue.read() as session:
        found = session.get(JobRow, job)
        if found is None or not _clean_row(found, names, pattern):
            return False
        # Looked at alone: the row is changed as it is when it is locked.
        session.expunge(found)
    with catalogue.write() as session:
        row = session.get(JobRow, job, with_for_update=True)
        return row is not None and _clean_row(row, names, pattern)


def _clean_row(row: JobRow, names: frozenset[str], pattern: re.Pattern[bytes]) -> bool:
    changed = False
    for column in ("result", "progress"):
        value = getattr(row, column)
        cleaned = without(value, names)
        if cleaned != value:
            setattr(row, column, None if cleaned is _GONE else cleaned)
            changed = True
    if kept := _studies_of(row.kind, row.state, row.arguments):
        row.arguments = [_ERASED if argument in kept else argument for argument in row.arguments]
        changed = True
    if row.error is not None and pattern.search(row.error.encode()):
        row.error, changed = "The error named an image that was erased.", True
    return changed


def _studies_of(kind: str, state: str, arguments: Sequence[str]) -> set[str]:
    """Return the UID of the study that a job has taken over; empty where it names none."""
    if kind != SYNC or state in ("queued", "running"):
        return set()
    places = [place for place, word in enumerate(arguments[:-1], 1) if word == STUDY]
    return {arguments[place] for place in places} - {_ERASED}


def _erase_from_folders(
    folder: JobFolder, job: int, names: frozenset[str], pattern: re.Pattern[bytes], left: list[Path]
) -> bool:
    changed, places = False, [place.path for place in (folder, *folder.aside()) if place.path.is_dir()]
    if not places:
        return False
    lock = folder.lock() if folder.path in places else None
    if lock is None and folder.path in places:
        raise CollectionInUseError(
            f"Job {job} is at work in its folder, which may name the images: they are erased from all else; "
            "erase them again when it has ended."
        )
    try:
        for place in places:
            changed |= _erase_from_folder(place, names, pattern, left)
    finally:
        if lock is not None:
            os.close(lock)
    return changed


def without(value: Any, names: Collection[str]) -> Any:
    """Return a JSON value without what names an image; an object goes with the value that names it."""
    if isinstance(value, str):
        return _GONE if value in names or Path(value).name in names else value
    if isinstance(value, list):
        return [item for item in (without(item, names) for item in value) if item is not _GONE]
    if isinstance(value, dict):
        cleaned = {key: without(item, names) for key, item in value.items() if key not in names}
        return _GONE if any(item is _GONE for item in cleaned.values()) else cleaned
    return value


def _erase_from_folder(
    folder: Path, names: frozenset[str], pattern: re.Pattern[bytes], left: list[Path]
) -> bool:
    changed = False
    for path in _files(folder):
        if path.name in names or path.stem in names:
            path.unlink()
            changed = True
        elif not path.is_symlink() and _names_one(path, pattern):
            if path.suffix == ".json":
                changed |= _rewrite_document(path, names)
            elif path.suffix in _LINES:
                changed |= _rewrite_lines(path, pattern)
            if _names_one(path, pattern):
                left.append(path)
    return changed


def _files(folder: Path) -> Iterator[Path]:
    for at, _, files in os.walk(folder):
        for name in sorted(files):
            yield Path(at, name)


def _pattern(names: Collection[str]) -> re.Pattern[bytes]:
    """Match ids and digests as words of their own, as they are or as JSON writes them."""
    written = {form for name in names for form in (name, json.dumps(name)[1:-1])}
    either = b"|".join(re.escape(form.encode()) for form in sorted(written))
    return re.compile(rb"(?<![\w.#-])(?:" + either + rb")(?![\w#-])")


def _names_one(path: Path, pattern: re.Pattern[bytes]) -> bool:
    """Tell whether a file names an image, in bounded memory."""
    before = b""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            if pattern.search(before + block):
                return True
            before = block[-1024:]
    return False


def _rewrite_document(path: Path, names: frozenset[str]) -> bool:
    try:
        value = json.loads(path.read_bytes())
    except ValueError:
        return False
    cleaned = without(value, names)
    if cleaned == value:
        return False
    with atomic_file(path) as file:
        file.write(json.dumps(None if cleaned is _GONE else cleaned, ensure_ascii=False).encode() + b"\n")
    return True


def _rewrite_lines(path: Path, pattern: re.Pattern[bytes]) -> bool:
    with ExitStack() as opened:
        read = opened.enter_context(path.open("rb"))
        written = opened.enter_context(atomic_file(path))
        for line in read:
            if not pattern.search(line):
                written.write(line)
    return True
