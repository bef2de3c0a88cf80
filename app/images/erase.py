"""Erase images: out of catalogue, files, snapshots, jobs and feedback; over HTTP and by the command."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.audit.trail import open_trail
from app.jobs.erasure import ErasedJobs, erase_from_jobs, refuse_running
from app.settings import Settings
from index.audit.event import Actor, Event
from index.catalogue.collections import names_of, require_collection
from index.catalogue.lookup import images_named, rows_among
from index.catalogue.tables import AuditNameRow
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
from index.errors import CollectionInUseError, NoErasureError, shortened
from index.files.stale import UNTOUCHED_SECONDS, remove_abandoned, remove_stale, unfinished
from index.home import Home
from index.keys.home_secret import patient_key


@dataclass(frozen=True, slots=True)
class Erasure:
    """Result of an erasure.

    Attributes:
        erased: Images that were erased, and backups that hold them.
        jobs: Jobs that named them, and files of jobs that still do.
        log_is_empty: Whether nothing of them is left in the database's log; it is until its readers end.
        resumed: Ids whose erasure had been begun before, and not finished.
        unknown: Ids that neither the collection nor the audit trail knows.
        later: Ids that images had got since they had one of those that were asked for.
        unfinished: Unfinished files that may hold them: being written, or left by killed backups.
    """

    erased: Erased
    jobs: ErasedJobs
    log_is_empty: bool
    resumed: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    unfinished: tuple[Path, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the images that were erased, now or in part before."""
        return tuple(dict.fromkeys((*self.erased.images, *self.resumed)))


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
    """Erase images of a collection, so that no byte of them is left in the files of the home.

    After a stop the same call goes on, and so does every erasure in the collection, as one without ids does.
    An id that an image had before it was moved stands for that image.

    Args:
        settings: Settings of this process.
        home: Home of the collection.
        collection: Name of the collection.
        ids: Ids of the images; with no patient and no study, none: those of the erasures in the collection
            that were stopped.
        actor: Whoever erases them, for the audit trail.
        patient: Patient ID, or its keyed hash, whose images and reports are erased, too.
        study: Study Instance UID, accession number or its keyed hash, likewise.
        operation: Name of the command or route.
        request: Id of the request.

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
        people = People.of(patient_key(settings.home), patient, study)
    # Else one would end the notes of another, whose work it does not know.
    with keep_others_away(settings.home):
        with home.catalogue.read() as session:
            refuse_running(session, collection)
            notes = pending_erasures(settings.home)
            unfinished_before = [one for one in notes if one.collection == collection]
            asked = ids
            # A stop may have come before any of their rows was removed.
            selected = people.images(session, collection)
            stopped = (name for one in unfinished_before for name in one.ids)
            ids = list(dict.fromkeys((*ids, *selected, *stopped)))
            trail, names = open_trail(settings, home.catalogue), names_of(session, collection)
            there = _there(session, collection, ids)
            gone = [name for name in ids if name not in there]
            moved = trail.other_ids(session, names, gone, former=False)
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
            everybody = (people, *(one.people for one in unfinished_before))
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
                partial(refuse_running, collection=collection),
                People(
                    tuple(name for one in everybody for name in one.patients),
                    tuple(name for one in everybody for name in one.studies),
                ),
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
        jobs = ErasedJobs()
        for one in (*unfinished_before, pending):
            erase_from_jobs(settings, home, one, jobs)
        # Last: what was deleted lies in free pages until the database is rewritten.
        log_is_empty = home.catalogue.compact()
        for one in (pending, *unfinished_before):
            one.end()
        known = {*erased.images, *begun, *traced}
        return Erasure(
            erased,
            jobs,
            log_is_empty,
            tuple(name for name in ids if name in begun),
            tuple(name for name in dict.fromkeys(asked) if name not in known),
            tuple(later),
            # No encoder holds an image.
            tuple(path for path in left if not path.is_relative_to(home.bundles_folder)),
        )


def _there(session: Session, collection: str, ids: Sequence[str]) -> set[str]:
    """Return those of the ids that a collection has an image of."""
    return set(images_named(session, require_collection(session, collection).id, ids))


def _traced(session: Session, collection: str, ids: Sequence[str]) -> set[str]:
    """Return those of the ids that the audit trail names in this collection."""
    query = select(AuditNameRow.name).where(AuditNameRow.collection.in_(names_of(session, collection)))
    rows = rows_among(session, query, AuditNameRow.name, ids)
    return {row.name for row in rows if row.name is not None}
