"""Requests that are answered 202 with a job: it is queued with its answer, or neither."""

from collections.abc import Callable
from functools import partial
from http import HTTPStatus

from fastapi import Request
from sqlalchemy.orm import Session

from app.edge.addresses import root_of
from app.idempotency import Attempt, attempt_of
from app.jobs.queue import give_job
from app.jobs.schemas import JobEntry
from app.services import Services
from index.catalogue.jobs import Job


async def queue_job(
    request: Request,
    services: Services,
    kind: str,
    arguments: list[str],
    *,
    check: Callable[[Session], None] = lambda _: None,
) -> Job:
    """Queue a job; the answer to a request with a key is kept in the same transaction.

    Args:
        request: The request.
        services: Services of the running application.
        kind: One of `app.jobs.kinds.KINDS`.
        arguments: Arguments of the command.
        check: Raises an error where the job is not to be given now.

    Raises:
        JobExistsError: Another job retrains the same collection.
    """
    attempt = attempt_of(request)
    # A service that is killed now has queued the job with its answer, or neither.
    also = None if attempt is None else partial(_keep_answer, attempt, request)
    give = partial(give_job, services.engine.home.catalogue, kind, arguments, check=check, also=also)
    return await services.threads.write(give)


def location_of(request: Request, job: Job) -> str:
    """Return the path of a job."""
    return f"{root_of(request.scope)}/v1/jobs/{job.id}"


def _keep_answer(attempt: Attempt, request: Request, session: Session, job: Job) -> None:
    headers = {"content-type": "application/json", "location": location_of(request, job)}
    attempt.keep(session, HTTPStatus.ACCEPTED, headers, JobEntry.of(job).model_dump_json().encode())
