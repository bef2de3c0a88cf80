"""Jobs that activate a generation, which an administrator of its collection may queue: one at a time."""

from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.concurrency.threads import Threads
from app.jobs.queue import is_study_sync
from index.catalogue import Catalogue
from index.catalogue.jobs import Job, get_job
from index.catalogue.tables import CollectionRow, JobRow
from index.errors import JobExistsError, UnknownJobError
from index.keys.grants import Role

KIND: Final = "reindex"
_ACTIVATE: Final = "--activate"
# Of numbers that a database can look for.
_MAX_DIGITS: Final = 18


def activation_arguments(collection: str, generation: int) -> list[str]:
    """Return the arguments of the command that completes a generation and activates it."""
    return [collection, "--generation", str(generation), _ACTIVATE]


async def role_of_job(threads: Threads, catalogue: Catalogue, number: str) -> tuple[Role, str] | None:
    """Return the role in a collection that may follow and cancel a job; None: no role in one collection may.

    Args:
        threads: Threads for reads of the catalogue.
        catalogue: Catalogue of the job.
        number: Its number, as an address has it.
    """
    if not (number.isascii() and number.isdecimal() and len(number) <= _MAX_DIGITS):
        return None

    def read() -> Job | None:
        with catalogue.read() as session:
            try:
                return get_job(session, int(number))
            except UnknownJobError:
                return None

    job = await threads.read(read)
    if job is None:
        return None
    if is_study_sync(job):
        return "curator", job.arguments[0]
    return ("admin", job.arguments[0]) if _is_activation(job) else None


def refuse_second(session: Session, collection: str) -> None:
    """Make sure that no other job embeds a collection, or is to.

    Args:
        session: Session of the transaction that adds the job.
        collection: Name of the collection.

    Raises:
        JobExistsError: One does.
    """
    # Lookups go one by one until the transaction ends.
    session.execute(select(CollectionRow.id).where(CollectionRow.name == collection).with_for_update())
    query = select(JobRow.id, JobRow.state).where(
        JobRow.kind == KIND,
        JobRow.state.in_(("queued", "running")),
        JobRow.arguments[0].as_string() == collection,
    )
    found = session.execute(query.limit(1)).first()
    if found is not None:
        raise JobExistsError(
            f"{collection!r} is embedded by job {found.id} already, which is {found.state}: wait for its "
            "end, or cancel it first."
        )


def _is_activation(job: Job) -> bool:
    """Whether a job is one as `activation_arguments` makes it: others may name folders of the server."""
    given = job.arguments
    return (
        job.kind == KIND
        and job.folder is None
        and len(given) == 4
        and given[2].isdecimal()
        and given == activation_arguments(given[0], int(given[2]))
    )
