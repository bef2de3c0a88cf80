"""Erase images: out of catalogue, files, snapshots, jobs and feedback; over HTTP and by the command."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.audit.trail import open_trail
from app.jobs.erasure import ErasedJobs, erase_from_jobs, refuse_running
from app.settings import Settings
from index.audit.event import Actor, Event
from index.erasure.erase import Erased, erase_images
from index.files.stale import UNTOUCHED_SECONDS, remove_stale, unfinished
from index.home import Home


@dataclass(frozen=True, slots=True)
class Erasure:
    """Result of an erasure.

    Attributes:
        erased: Images that were erased, and backups that hold them.
        jobs: Jobs that named them, and files of jobs that still do.
        log_is_empty: Whether nothing of them is left in the database's log; it is until its readers end.
    """

    erased: Erased
    jobs: ErasedJobs
    log_is_empty: bool


def erase(
    settings: Settings,
    home: Home,
    collection: str,
    ids: Sequence[str],
    actor: Actor,
    *,
    operation: str,
    request: str | None = None,
) -> Erasure:
    """Erase images of a collection, so that no byte of them is left in the files of the home.

    After a stop the same call goes on; see `index.erasure.erase.erase_images`.

    Args:
        settings: Settings of this process.
        home: Home of the collection.
        collection: Name of the collection.
        ids: Ids of the images.
        actor: Whoever erases them, for the audit trail.
        operation: Name of the command or route.
        request: Id of the request.

    Raises:
        UnknownCollectionError: No collection has this name.
        JobStateError: A job is at work on the collection.
        BackupError: A backup is being written.
        DiskFullError: The disk has no room to rewrite the database.
        RecoquestError: The catalogue or the store cannot be used.
        OSError: A file of a job cannot be rewritten.
    """
    with home.catalogue.read() as session:
        refuse_running(session, collection)
    event = Event(
        action="erase",
        actor=actor,
        collection=collection,
        objects=list(ids),
        keyed=True,
        request=request,
        details={"operation": operation},
    )
    trail = open_trail(settings, home.catalogue)
    erased = erase_images(home, trail, collection, ids, event if settings.audit else None)
    remove_stale(unfinished(settings.home), UNTOUCHED_SECONDS)
    # Files that another image shares keep their digest.
    digests = set(erased.digests) - set(erased.shared)
    jobs = erase_from_jobs(settings, home.catalogue, collection, {*ids, *digests})
    # Last: what was deleted lies in free pages until the database is rewritten.
    return Erasure(erased, jobs, home.catalogue.compact())
