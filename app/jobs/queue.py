"""The queue of jobs: workers look for the oldest once a second.

A collection is retrained, embedded and synced by one job at a time.
"""

from collections.abc import Callable, Sequence
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.jobs.kinds import Rules
from app.radiology.jobs import SYNC, SYNC_RULES
from index.catalogue import Catalogue
from index.catalogue.jobs import Job, add_job, get_job, latest_job, look_alone
from index.catalogue.tables import JobRow
from index.errors import JobExistsError, UnknownJobError
from index.keys.api_keys import Role

RETRAIN: Final = "retrain"
REINDEX: Final = "reindex"
# Digits of the largest numbers that a database can look up.
_MAX_DIGITS: Final = 18
# All other words of a retraining that begin with dashes are options, followed by their value.
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
        _rules(kind).refuse(session, arguments)
        job = add_job(session, kind, arguments, folder=folder)
        if also is not None:
            also(session, job)
        return job


def retrained_collection(arguments: Sequence[str]) -> str | None:
    """The collection of a retraining, at any position of the arguments."""
    words = iter(arguments)
    for argument in words:
        if not argument.startswith("--"):
            return argument
        if argument not in _FLAGS and "=" not in argument:
            next(words, None)
    return None


def last_retraining(session: Session, collection: str) -> Job | None:
    """The job that retrains a collection, or did so last.

    Others who look wait until the transaction ends.
    """
    look_alone(session, [collection])
    return latest_job(session, RETRAIN, lambda arguments: retrained_collection(arguments) == collection)


def refuse_second_retraining(session: Session, arguments: Sequence[str]) -> None:
    """Raise `JobExistsError` if another job retrains the same collection, or is to."""
    collection = retrained_collection(arguments)
    last = None if collection is None else last_retraining(session, collection)
    if last is not None and not last.has_ended:
        raise JobExistsError(
            f"{collection!r} is already retrained by job {last.id}, which is {last.state}: submit another "
            "when that has ended, or cancel it first."
        )


def activation_arguments(collection: str, generation: int) -> list[str]:
    """Return the arguments of the command that completes a generation and activates it."""
    return [collection, "--generation", str(generation), "--activate"]


def role_of_job(catalogue: Catalogue, number: str) -> tuple[Role, str] | None:
    """Return the role in a collection that may follow and cancel a job; None: none in one collection may.

    Jobs submitted with a folder may name other folders of the server.
    """
    if not (number.isascii() and number.isdecimal() and len(number) <= _MAX_DIGITS):
        return None
    try:
        with catalogue.read() as session:
            job = get_job(session, int(number))
    except UnknownJobError:
        return None
    return None if job.folder is not None else _rules(job.kind).role(job.arguments)


def _role_of_reindex(arguments: Sequence[str]) -> tuple[Role, str] | None:
    match arguments:
        case [collection, "--generation", generation, "--activate"] if generation.isdecimal():
            return "admin", collection
    return None


def refuse_second_embedding(session: Session, collection: str) -> None:
    """Raise `JobExistsError` if another job embeds a collection, or is to."""
    look_alone(session, [collection])
    query = select(JobRow.id, JobRow.state).where(
        JobRow.kind == REINDEX,
        JobRow.state.in_(("queued", "running")),
        JobRow.arguments[0].as_string() == collection,
    )
    job = session.execute(query.limit(1)).first()
    if job is not None:
        raise JobExistsError(
            f"{collection!r} is already embedded by job {job.id}, which is {job.state}: wait for its "
            "end, or cancel it first."
        )


def _rules(kind: str) -> Rules:
    return _RULES.get(kind, Rules())


_RULES: Final = {
    RETRAIN: Rules(refuse=refuse_second_retraining),
    REINDEX: Rules(role=_role_of_reindex),
    SYNC: SYNC_RULES,
}
