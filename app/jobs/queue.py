"""The queue of jobs: workers look for the oldest once a second.

A collection is retrained, embedded and synced by one job at a time.
"""

import shlex
from collections.abc import Callable, Sequence
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from index.catalogue import Catalogue
from index.catalogue.jobs import Job, add_job, get_job, latest_job
from index.catalogue.tables import CollectionRow, JobRow
from index.errors import JobExistsError, UnknownJobError
from index.keys.api_keys import Role

RETRAIN: Final = "retrain"
REINDEX: Final = "reindex"
SYNC: Final = "pacs_sync"
STUDY: Final = "--study"
NOTE: Final = "--note"
# Of numbers that a database can look for.
_MAX_DIGITS: Final = 18
# Whatever else of a retraining begins with dashes is an option and followed by its value.
_FLAGS: Final = frozenset({"--promote", "--no-promote", "--"})


def give_job(
    catalogue: Catalogue,
    kind: str,
    arguments: list[str],
    *,
    folder: str | None = None,
    check: Callable[[Session], object] = lambda _: None,
    also: Callable[[Session, Job], None] | None = None,
) -> Job:
    """Queue a job.

    Relative paths among the arguments are below `folder`. `check` and `also` are done in the transaction that
    queues it; the first refuses it.

    Raises:
        JobExistsError: Another job retrains the same collection, or waits to sync the same.
    """
    with catalogue.write() as session:
        check(session)
        if kind == RETRAIN:
            refuse_second_retraining(session, arguments)
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
    """Return the arguments of a sync of one study."""
    return [*shlex.split(sync), *([NOTE] if note else []), STUDY, study]


def last_sync(session: Session, arguments: Sequence[str]) -> Job | None:
    """Return the latest sync with an image archive that has these arguments.

    Others who look wait until the transaction ends.
    """
    _look_alone(session, arguments)
    return latest_job(session, SYNC, lambda given: list(given) == list(arguments))


def _refuse_second_sync(session: Session, arguments: Sequence[str]) -> None:
    last = last_sync(session, arguments)
    if last is not None and last.state == "queued":
        raise JobExistsError(
            f"Job {last.id} waits to sync the same, and will bring over all that is there by then: give no "
            "other before it has begun."
        )


def retrained_collection(arguments: Sequence[str]) -> str | None:
    """The collection that a retraining is of, wherever its name stands among the arguments."""
    left = iter(arguments)
    for argument in left:
        if not argument.startswith("--"):
            return argument
        if argument not in _FLAGS and "=" not in argument:
            next(left, None)
    return None


def last_retraining(session: Session, collection: str) -> Job | None:
    """The job that retrains a collection, or did so last.

    Others who look wait until the transaction ends.
    """
    _look_alone(session, [collection])
    return latest_job(session, RETRAIN, lambda arguments: retrained_collection(arguments) == collection)


def refuse_second_retraining(session: Session, arguments: Sequence[str]) -> None:
    """Raise `JobExistsError` if another job retrains the same collection, or is to."""
    collection = retrained_collection(arguments)
    last = None if collection is None else last_retraining(session, collection)
    if last is not None and not last.has_ended:
        raise JobExistsError(
            f"{collection!r} is retrained by job {last.id} already, which is {last.state}: give another when "
            "that has ended, or cancel it first."
        )


def activation_arguments(collection: str, generation: int) -> list[str]:
    """Return the arguments of the command that completes a generation and activates it."""
    return [collection, "--generation", str(generation), "--activate"]


def role_of_job(catalogue: Catalogue, number: str) -> tuple[Role, str] | None:
    """Return the role in a collection that may follow and cancel a job; None: none in one collection may.

    Jobs by `study_sync` and `activation_arguments` have one; others may name folders of the server.
    """
    if not (number.isascii() and number.isdecimal() and len(number) <= _MAX_DIGITS):
        return None
    try:
        with catalogue.read() as session:
            job = get_job(session, int(number))
    except UnknownJobError:
        return None
    match job.kind, job.folder, job.arguments:
        case "pacs_sync", None, [collection, *_, "--study", _]:
            return "curator", collection
        case "reindex", None, [collection, "--generation", generation, "--activate"] if (
            generation.isdecimal()
        ):
            return "admin", collection
    return None


def refuse_second_embedding(session: Session, collection: str) -> None:
    """Raise `JobExistsError` if another job embeds a collection, or is to."""
    _look_alone(session, [collection])
    query = select(JobRow.id, JobRow.state).where(
        JobRow.kind == REINDEX,
        JobRow.state.in_(("queued", "running")),
        JobRow.arguments[0].as_string() == collection,
    )
    found = session.execute(query.limit(1)).first()
    if found is not None:
        raise JobExistsError(
            f"{collection!r} is embedded by job {found.id} already, which is {found.state}: wait for its "
            "end, or cancel it first."
        )


def _look_alone(session: Session, collections: Sequence[str]) -> None:
    """Have lookups of the jobs of these collections go one by one until the transaction ends."""
    session.execute(select(CollectionRow.id).where(CollectionRow.name.in_(collections)).with_for_update())
