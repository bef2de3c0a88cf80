"""Jobs: given, seen and cancelled over HTTP. They name folders of the server, so all is for its operator."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from sqlalchemy.orm import Session

from app.access.security import require_admin
from app.http.problems import problem_responses
from app.jobs.heartbeat import count_workers
from app.jobs.queue import give_job
from app.operations.idempotency import Attempt, IdempotentRoute, attempt_of, idempotency_key
from app.operations.services import InjectedServices, Services
from app.schemas.jobs import DuplicatesJob, JobEntry, Jobs, NewJob, ReindexJob, RetrainJob
from index.catalogue.collections import require_active, require_collection
from index.catalogue.jobs import Job, JobState, cancel_job, get_job, list_jobs
from index.errors import CatalogueError
from index.generations.activation import generation_of
from index.generations.models import require_model

router = APIRouter(
    prefix="/v1/jobs", tags=["jobs"], dependencies=[Depends(require_admin)], route_class=IdempotentRoute
)

_LOOK_SECONDS = 0.5
_COMMON = (
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
_PROBLEMS = problem_responses(*_COMMON, HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)
_Number = Annotated[int, Path(ge=1, lt=2**63, description="Number of the job.")]
_Limit = Annotated[int, Query(ge=1, le=1000, description="Most that are listed.")]
_Found = TypeVar("_Found")


async def known_job(job: _Number, services: InjectedServices) -> Job:
    """The job of a path; one that is not there is told of before an answer begins."""
    return await _read(services, partial(get_job, job=job))


@router.post(
    "",
    summary="Give a job to the workers",
    status_code=HTTPStatus.ACCEPTED,
    responses=_PROBLEMS
    | problem_responses(HTTPStatus.CONFLICT)
    | {202: {"headers": {"Location": {"description": "The job.", "schema": {"type": "string"}}}}},
    dependencies=[Depends(idempotency_key)],
)
async def post_job(new: NewJob, request: Request, services: InjectedServices, response: Response) -> JobEntry:
    """Queue a job; a worker takes it when one is free. Nothing happens where no `recoquest worker` runs."""
    match new:
        case ReindexJob(collection=collection, generation=int(number)):
            await _read(services, partial(generation_of, collection=collection, number=number))
        case ReindexJob(collection=collection, model=str(digest)):
            await _read(services, partial(require_collection, name=collection))
            await _read(services, partial(require_model, digest=digest))
        case RetrainJob(collection=collection) | DuplicatesJob(collection=collection):
            await _read(services, partial(require_active, collection=collection))
    catalogue = services.engine.home.catalogue
    attempt = attempt_of(request)
    # A service that is killed now has queued the job with its answer, or neither.
    also = None if attempt is None else partial(_keep_answer, attempt)
    job = await services.threads.write(give_job, catalogue, new.kind, new.arguments(), also=also)
    response.headers["Location"] = _location(job)
    return JobEntry.of(job)


@router.get("", summary="All jobs", responses=problem_responses(*_COMMON, HTTPStatus.UNPROCESSABLE_ENTITY))
async def get_jobs(
    services: InjectedServices,
    state: Annotated[JobState | None, Query(description="Only those in this state.")] = None,
    limit: _Limit = 50,
) -> Jobs:
    """The jobs, the latest first, and how many workers are there to do them."""
    found = await _read(services, partial(list_jobs, state=state, limit=limit))
    workers = await services.threads.read(count_workers, services.settings)
    return Jobs(jobs=[JobEntry.of(job) for job in found], workers=workers)


@router.get("/{job}", summary="One job", responses=_PROBLEMS)
async def get_one_job(job: Annotated[Job, Depends(known_job)]) -> JobEntry:
    """A job with its state."""
    return JobEntry.of(job)


@router.post(
    "/{job}/cancel",
    summary="Cancel a job",
    status_code=HTTPStatus.ACCEPTED,
    responses=_PROBLEMS | problem_responses(HTTPStatus.CONFLICT),
    dependencies=[Depends(idempotency_key)],
)
async def post_cancel(job: _Number, services: InjectedServices) -> JobEntry:
    """End a job before its time; its worker may need some seconds to stop it. What it has written stays."""

    def cancel() -> Job:
        with services.engine.home.catalogue.write() as session:
            return cancel_job(session, job)

    return JobEntry.of(await services.threads.write(cancel))


@router.get(
    "/{job}/events",
    summary="A job as it goes on",
    response_class=EventSourceResponse,
    responses=_PROBLEMS,
)
async def get_job_events(
    job: Annotated[Job, Depends(known_job)], services: InjectedServices
) -> AsyncIterator[ServerSentEvent]:
    """The job now and after every change, as server-sent events called `job`, until it has ended.

    A service that stops ends the stream.
    """
    entry = JobEntry.of(job)
    yield ServerSentEvent(event="job", data=entry)
    while not job.has_ended:
        with suppress(TimeoutError):
            await asyncio.wait_for(services.stopping.wait(), _LOOK_SECONDS)
            return
        with suppress(CatalogueError):
            job = await _read(services, partial(get_job, job=job.id))
        if JobEntry.of(job) != entry:
            entry = JobEntry.of(job)
            yield ServerSentEvent(event="job", data=entry)


def _location(job: Job) -> str:
    return f"/v1/jobs/{job.id}"


def _keep_answer(attempt: Attempt, session: Session, job: Job) -> None:
    headers = {"content-type": "application/json", "location": _location(job)}
    attempt.keep(session, HTTPStatus.ACCEPTED, headers, JobEntry.of(job).model_dump_json().encode())


async def _read(services: Services, query: Callable[[Session], _Found]) -> _Found:
    def read() -> _Found:
        with services.engine.home.catalogue.read() as session:
            return query(session)

    return await services.threads.read(read)
