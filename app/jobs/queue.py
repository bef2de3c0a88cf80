"""The queue of jobs: those in the catalogue that wait; workers look for the oldest once a second."""

from collections.abc import Callable

from sqlalchemy.orm import Session

from app.jobs import retrainings
from index.catalogue import Catalogue
from index.catalogue.jobs import Job, add_job


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
        JobExistsError: Another job retrains the same collection.
    """
    with catalogue.write() as session:
        check(session)
        if kind == retrainings.KIND:
            retrainings.refuse_second(session, arguments)
        job = add_job(session, kind, arguments, folder=folder)
        if also is not None:
            also(session, job)
        return job
