"""The queue of jobs: those in the catalogue that wait; workers look for the oldest once a second."""

import shlex
from collections.abc import Callable, Sequence
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.jobs import retrainings
from index.catalogue import Catalogue
from index.catalogue.jobs import Job, add_job, latest_job
from index.catalogue.tables import CollectionRow
from index.errors import JobExistsError

SYNC: Final = "pacs_sync"
STUDY: Final = "--study"
NOTE: Final = "--note"


def give_job(
    catalogue: Catalogue,
    kind: str,
    arguments: list[str],
    *,
    folder: str | None = None,
    check: Callable[[Session], None] = lambda _: None,
    also: Callable[[Session, Job], None] | None = None,
) -> Job:
    """Queue a job.

    Args:
        catalogue: Catalogue of the job.
        kind: One of `app.jobs.kinds.KINDS`.
        arguments: Arguments of the command.
        folder: Base of relative paths among them.
        check: Raises an error where the job is not to be given now.
        also: Done in the transaction that queues the job.

    Raises:
        JobExistsError: Another job retrains the same collection, or waits to sync the same.
    """
    with catalogue.write() as session:
        check(session)
        if kind == retrainings.KIND:
            retrainings.refuse_second(session, arguments)
        if kind == SYNC:
            _refuse_second_sync(session, arguments)
        job = add_job(session, kind, arguments, folder=folder)
        if also is not None:
            also(session, job)
        return job


def synced_collection(sync: str) -> str:
    """Return the collection of a sync, by the arguments in the settings."""
    return shlex.split(sync)[0]


def study_sync(sync: str, study: str, *, note: bool = False) -> list[str]:
    """Return the arguments of a sync of one study.

    Args:
        sync: Arguments of the whole sync, as the settings have them.
        study: Study Instance UID.
        note: Whether a note of similar cases is written into the study.
    """
    return [*shlex.split(sync), *([NOTE] if note else []), STUDY, study]


def is_study_sync(job: Job) -> bool:
    """Tell whether a job is a sync as `study_sync` makes it: others may name folders of the server."""
    return job.kind == SYNC and job.folder is None and job.arguments[-2:-1] == [STUDY]


def last_sync(session: Session, arguments: Sequence[str]) -> Job | None:
    """Return the latest sync with an image archive that has these arguments.

    The row locks serialize lookups until the transaction ends.
    """
    session.execute(select(CollectionRow.id).where(CollectionRow.name.in_(arguments)).with_for_update())
    return latest_job(session, SYNC, lambda given: list(given) == list(arguments))


def _refuse_second_sync(session: Session, arguments: Sequence[str]) -> None:
    last = last_sync(session, arguments)
    if last is not None and last.state == "queued":
        raise JobExistsError(
            f"Job {last.id} waits to sync the same, and will bring over all that is there by then: give no "
            "other before it has begun."
        )
