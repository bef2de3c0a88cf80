"""One retraining at a time: which job retrains a collection, and that no second one is given meanwhile."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from index.catalogue.jobs import Job, latest_job
from index.catalogue.tables import CollectionRow
from index.errors import JobExistsError

KIND: Final = "retrain"
# Whatever else begins with dashes is an option and followed by its value.
_FLAGS: Final = frozenset({"--promote", "--no-promote", "--"})


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

    The row lock serializes lookups until the transaction ends.
    """
    session.execute(select(CollectionRow.id).where(CollectionRow.name == collection).with_for_update())
    return latest_job(session, KIND, lambda arguments: retrained_collection(arguments) == collection)


def refuse_second(session: Session, arguments: Sequence[str]) -> None:
    """Make sure that no other job retrains the same collection.

    Args:
        session: Session of the transaction that adds the job.
        arguments: Arguments of the new retraining.

    Raises:
        JobExistsError: Another retraining of the collection waits or runs.
    """
    collection = retrained_collection(arguments)
    last = None if collection is None else last_retraining(session, collection)
    if last is not None and not last.has_ended:
        raise JobExistsError(
            f"{collection!r} is retrained by job {last.id} already, which is {last.state}: give another when "
            "that has ended, or cancel it first."
        )
