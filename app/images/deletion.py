"""Images out of a collection: by a filter, batch by batch, or erased from all that the home holds."""

import asyncio
import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import structlog
from pydantic import JsonValue
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.audit.trail import filter_parts, open_trail
from app.edge.problems import kind_of
from app.images.schemas import Refusal
from app.jobs.folder import JobFolder
from app.jobs.kinds import KINDS
from app.services import Services
from app.settings import Settings
from index.audit.event import Actor, Detail, Event
from index.catalogue import PAUSE_SECONDS
from index.catalogue.collections import names_of, require_collection
from index.catalogue.lookup import images_named, parts, rows_among
from index.catalogue.tables import AuditNameRow, JobRow
from index.erasure import (
    NOBODY,
    Erased,
    PendingErasure,
    People,
    erase_images,
    keep_others_away,
    pending_erasures,
    unfinished_backups,
)
from index.errors import CollectionInUseError, NoErasureError, UnexpectedCountError, shortened
from index.files.stale import UNTOUCHED_SECONDS, remove_abandoned, remove_stale, unfinished
from index.filters.grammar import parse_filter
from index.home import Home
from index.keys.home_secret import patient_key
from index.writes.deletion import delete_unchanged, find_matching, ids_of
from index.writes.live import remove_unused_files
from training.common.atomic import atomic_file, write_text
from training.common.errors import RecoquestError

# Images of one request: some ten seconds' work.
MAX_DELETED: Final = 10_000
_SHOWN: Final = 10
# What a value becomes that names an erased image, and an argument of a job.
_GONE: Final = object()
_ERASED: Final = "erased"
_BLOCK: Final = 1 << 20
_LINES: Final = frozenset({".jsonl", ".ndjson", ".csv", ".tsv", ".txt", ".log"})

_log = structlog.stdlib.get_logger(__name__)


class Deletion:
    """A deletion by filter.

    Attributes:
        matching: The images that passed the filter when it began.
        ids: Ids of the first of them.
        query: The filter, as events have it.
        deleted: Number of deleted images.

    Raises:
        FilterError: The filter is none, or does not fit the collection.
        UnknownCollectionError: No collection has this name.
        UnexpectedCountError: The filter finds another number of images than expected.
    """

    def __init__(
        self,
        settings: Settings,
        home: Home,
        collection: str,
        condition: Mapping[str, JsonValue],
        actor: Actor,
        *,
        operation: str,
        request: str | None = None,
        expected: int | None = None,
    ) -> None:
        self._home = home
        self._collection = collection
        self._filter = parse_filter(condition)
        self._trail = open_trail(settings, home.catalogue) if settings.audit else None
        self._actor = actor
        self._request = request
        with home.catalogue.read() as session:
            self.matching = find_matching(session, collection, self._filter)
            if expected not in (None, len(self.matching.keys)):
                raise UnexpectedCountError(len(self.matching.keys), expected)
            self.ids = ids_of(session, self.matching.keys[:_SHOWN])
        self.query = filter_parts(condition)
        self.details: dict[str, Detail] = {"operation": operation, "matched": len(self.matching.keys)}
        self.deleted = 0

    def delete(self, keys: Sequence[int]) -> None:
        """Delete one batch, and write its event, in one transaction; then the files that nothing uses.

        Images that were changed since the beginning stay: they may not pass the filter any more.

        Raises:
            StaleWriteError: The collection was removed.
            CatalogueError: The catalogue cannot be used; nothing of the batch is deleted.
            DiskFullError: The disk has no space left; nothing of the batch is deleted.
        """
        with self._home.catalogue.write() as session:
            removed = delete_unchanged(session, self.matching, keys)
            if removed and self._trail is not None:
                event = Event(
                    action="delete",
                    actor=self._actor,
                    collection=self._collection,
                    objects=list(removed),
                    query=self.query,
                    request=self._request,
                    details=self.details,
                )
                self._trail.append_in(session, [event])
        self.deleted += len(removed)
        remove_unused_files(self._home, set(removed.values()))

    def remaining(self) -> int:
        """Count the images that pass the filter now."""
        with self._home.catalogue.read() as session:
            return len(find_matching(session, self._collection, self._filter).keys)


async def delete_batches(services: Services, deletion: Deletion) -> Refusal | None:
    """Delete batch by batch, each in a turn of its own; return what stopped it after the first."""
    done = 0
    for keys in parts(deletion.matching.keys):
        if done + len(keys) > MAX_DELETED:
            break
        try:
            await services.threads.write(deletion.delete, keys)
        except RecoquestError as error:
            if not deletion.deleted:
                raise
            return refusal("The deletion stopped in its middle", error)
        done += len(keys)
        await asyncio.sleep(PAUSE_SECONDS)
    return None


def refusal(what: str, error: RecoquestError) -> Refusal:
    """Describe an error after the first batch, which must not hide that images were deleted."""
    _log.warning("a deletion is incomplete", error=type(error).__name__)
    kind = kind_of(error)
    return Refusal.from_kind(kind, f"{what}: {kind.detail or error}")


@dataclass(slots=True)
class Erasure:
    """Result of an erasure.

    Attributes:
        erased: Images that were erased now, and backups that hold them.
        ids: Ids of the images that were erased, now or in part before.
        unknown: Ids that neither the collection nor the audit trail knows.
        later: Later ids of images that once had one of the requested ids.
        unfinished: Unfinished files that may contain them: in progress, or left by killed backups.
        log_is_empty: Whether the database's log is free of them; it isn't until its readers end.
        jobs: Numbers of the jobs that named them, whose row or folder was changed.
        retrainings: Numbers of the retrainings of the collection: their models have learned from its images.
        left: Files of jobs that name one of them and cannot be rewritten.
    """

    erased: Erased
    ids: tuple[str, ...]
    unknown: tuple[str, ...]
    later: tuple[str, ...]
    unfinished: tuple[Path, ...]
    log_is_empty: bool = False
    jobs: list[int] = field(default_factory=list)
    retrainings: list[int] = field(default_factory=list)
    left: list[Path] = field(default_factory=list)


def erase(
    settings: Settings,
    home: Home,
    collection: str,
    ids: Sequence[str],
    actor: Actor,
    *,
    patient: str | None = None,
    study: str | None = None,
    operation: str,
    request: str | None = None,
) -> Erasure:
    """Erase images of a collection, so that no byte of them remains in the files of the home.

    After a stop the same call continues, and so does every erasure in the collection, as one without ids,
    patient and study does. An id that an image had before it was moved refers to that image.

    Raises:
        UnknownCollectionError: No collection has this name.
        NoErasureError: There are no ids, and no erasure was stopped.
        CollectionInUseError: A job is at work on the collection, another erasure is under way, or a backup
            is being written.
        DiskFullError: The disk has no room to rewrite the database.
        RecoquestError: The catalogue or the store cannot be used.
        OSError: A file of a job cannot be rewritten.
    """
    people = NOBODY
    if patient is not None or study is not None:
        people = People.from_names(patient_key(settings.home), patient, study)
    # Otherwise one would end the records of another, whose work it doesn't know.
    with keep_others_away(settings.home):
        with home.catalogue.read() as session:
            _refuse_running(session, collection)
            notes = pending_erasures(settings.home)
            unfinished_before = [one for one in notes if one.collection == collection]
            requested = ids
            # An interrupted erasure may not have removed any of their rows.
            selected = people.images(session, collection)
            stopped = (name for one in unfinished_before for name in one.ids)
            ids = list(dict.fromkeys((*ids, *selected, *stopped)))
            trail, names = open_trail(settings, home.catalogue), names_of(session, collection)
            existing = _there(session, collection, ids)
            missing = [name for name in ids if name not in existing]
            moved = trail.other_ids(session, names, missing, former=False)
            later = sorted(_there(session, collection, sorted(moved)).difference(ids))
            ids += later
            others = sorted(trail.other_ids(session, names, ids, former=True).difference(ids))
            former = sorted(set(others) - _there(session, collection, others))
            if not ids and people == NOBODY and not unfinished_before:
                raise NoErasureError(
                    f"No erasure in {shortened(collection)!r} was stopped: name the images to be erased."
                )
            begun = {name for one in unfinished_before for name in one.erased_ids(session)}
            traced = _traced(session, collection, ids)
            fresh = [name for name in (*ids, *former) if name not in begun]
            pending = PendingErasure.begin(settings.home, session, collection, fresh, people)
            for one in unfinished_before:
                people = people.with_others(one.people)
        event = Event(
            action="erase",
            actor=actor,
            collection=collection,
            objects=[*ids, *former],
            keyed=True,
            request=request,
            details={"operation": operation},
        )
        try:
            # No job of the collection begins between the check and the removal; a later one finds no image.
            erased = erase_images(
                home,
                trail,
                collection,
                ids,
                event if settings.audit else None,
                partial(_refuse_running, collection=collection),
                people,
                former,
            )
        except CollectionInUseError:
            # Nothing was removed.
            pending.end()
            raise
        remove_abandoned(home.store.unfinished())
        remove_stale(unfinished(settings.home), UNTOUCHED_SECONDS)
        with home.catalogue.read() as session:
            left = (*unfinished(settings.home), *unfinished_backups(session))
        accounted = {*erased.images, *begun, *traced}
        erasure = Erasure(
            erased,
            ids=tuple(dict.fromkeys((*erased.images, *(name for name in ids if name in begun)))),
            unknown=tuple(name for name in dict.fromkeys(requested) if name not in accounted),
            later=tuple(later),
            # No encoder contains an image.
            unfinished=tuple(path for path in left if not path.is_relative_to(home.bundles_folder)),
        )
        for one in (*unfinished_before, pending):
            _erase_from_jobs(settings, home, one, erasure)
        # Last: deleted content stays in free pages until the database is rewritten.
        erasure.log_is_empty = home.catalogue.compact()
        for one in (pending, *unfinished_before):
            one.end()
        return erasure


def _there(session: Session, collection: str, ids: Sequence[str]) -> set[str]:
    """Return those of the ids that a collection has an image of."""
    return set(images_named(session, require_collection(session, collection).id, ids))


def _traced(session: Session, collection: str, ids: Sequence[str]) -> set[str]:
    """Return those of the ids that the audit trail names in this collection."""
    query = select(AuditNameRow.name).where(AuditNameRow.collection.in_(names_of(session, collection)))
    rows = rows_among(session, query, AuditNameRow.name, ids)
    return {row.name for row in rows if row.name is not None}


def _refuse_running(session: Session, collection: str) -> None:
    for row in session.execute(select(JobRow).where(JobRow.state == "running")).scalars():
        if collection in row.arguments:
            raise CollectionInUseError(
                f"Job {row.id} is at work on {collection!r} and may hold the images: wait for its end, or "
                "cancel it first."
            )


def _erase_from_jobs(settings: Settings, home: Home, pending: PendingErasure, erased: Erasure) -> None:
    """Remove ids and digests of images from the results and folders of all jobs of a collection.

    Of a JSON document the values that name one go, with the object that they describe; of a file of lines the
    lines; links and files called so go. All other files stay, and are reported if they name one. Jobs that
    took a single study over from an archive forget which: it may be that of the images. A row is changed in a
    transaction of its own, and files outside of any; the folder's lock lets the attempt of a job
    that begins meanwhile wait. After a stop, jobs that are done are not looked at again.
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
        job_names = names | _studies_of(row.kind, row.state, row.arguments)
        pattern = _pattern(job_names)
        if row.kind == "retrain" and row.state == "done" and row.id not in erased.retrainings:
            erased.retrainings.append(row.id)
        if row.id in pending.jobs or not job_names:
            continue
        # The folder first: the row names what else must be removed from it.
        changed = _erase_from_folders(
            JobFolder.for_job(settings, row.id), row.id, job_names, pattern, erased.left
        )
        with home.catalogue.write() as session:
            current = session.get(JobRow, row.id, with_for_update=True)
            changed |= _erase_from_row(current, job_names, pattern)
        if changed and row.id not in erased.jobs:
            erased.jobs.append(row.id)
        pending.jobs.add(row.id)
        if changed:
            pending.save()


def _erase_from_row(row: JobRow | None, names: frozenset[str], pattern: re.Pattern[bytes]) -> bool:
    if row is None:
        return False
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
    option = KINDS[kind].study if kind in KINDS and state not in ("queued", "running") else None
    return {study for word, study in pairwise(arguments) if word == option} - {_ERASED}


def _erase_from_folders(
    folder: JobFolder, job: int, names: frozenset[str], pattern: re.Pattern[bytes], left: list[Path]
) -> bool:
    folders = [each.path for each in (folder, *folder.aside()) if each.path.is_dir()]
    lock = folder.lock() if folder.path in folders else None
    if lock is None and folder.path in folders:
        raise CollectionInUseError(
            f"Job {job} is at work in its folder, which may name the images: they are erased from all else; "
            "erase them again when it has ended."
        )
    try:
        # In every folder, even if one has already changed.
        return sum(_erase_from_folder(folder_path, names, pattern, left) for folder_path in folders) > 0
    finally:
        if lock is not None:
            os.close(lock)


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
    folder: Path, names: frozenset[str], pattern: re.Pattern[bytes], unwritable: list[Path]
) -> bool:
    changed = False
    for path in sorted(folder.rglob("*")):
        if path.is_dir():
            continue
        if path.name in names or path.stem in names:
            path.unlink()
            changed = True
        elif not path.is_symlink() and _names_one(path, pattern):
            if path.suffix == ".json":
                changed |= _rewrite_document(path, names)
            elif path.suffix in _LINES:
                with path.open("rb") as read, atomic_file(path) as written:
                    written.writelines(line for line in read if not pattern.search(line))
                changed = True
            if _names_one(path, pattern):
                unwritable.append(path)
    return changed


def _pattern(names: Collection[str]) -> re.Pattern[bytes]:
    """Match ids and digests as words of their own, as they are or as JSON writes them."""
    written = {form for name in names for form in (name, json.dumps(name)[1:-1])}
    either = b"|".join(re.escape(form.encode()) for form in sorted(written))
    return re.compile(rb"(?<![\w.#-])(?:" + either + rb")(?![\w#-])")


def _names_one(path: Path, pattern: re.Pattern[bytes]) -> bool:
    """Return whether a file names an image, in bounded memory."""
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
    write_text(path, json.dumps(None if cleaned is _GONE else cleaned, ensure_ascii=False))
    return True
