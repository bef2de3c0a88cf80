"""Jobs over HTTP. They name folders of the server, so most routes are for its operator."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from http import HTTPStatus
from time import monotonic
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent

from app.edge.operations import operation
from app.edge.problems import problem_of, problem_responses
from app.heartbeat import count_workers
from app.idempotency import IdempotentRoute, idempotency_key
from app.jobs.schemas import JobEntry, JobKind, Jobs, NewJob, location_of, queue_job
from app.permissions import Permission, may
from app.services import InjectedServices
from index.catalogue import jobs as catalogue
from index.catalogue.jobs import Job, JobState
from index.errors import CatalogueError, CursorError

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], route_class=IdempotentRoute)

_LOOK_SECONDS = 0.5
# Keys, tokens and sessions may end while a stream continues.
_RECHECK_SECONDS = 5.0
_PROBLEMS = problem_responses(HTTPStatus.UNPROCESSABLE_ENTITY)
_Number = Annotated[int, Path(ge=1, lt=2**63, description="Number of the job.")]
_Limit = Annotated[int, Query(ge=1, le=1000, description="Number of jobs on a page.")]
# Digits of the largest numbers that a database can look up.
_MAX_CURSOR = 18
_OF_JOB = may("admin", of_job=True)


async def path_job(job: _Number, services: InjectedServices) -> Job:
    """The job of a path; a missing one is reported before an answer begins."""
    return await services.read(catalogue.get_job, job)


@router.post(
    "",
    summary="Give a job to the workers",
    status_code=HTTPStatus.ACCEPTED,
    responses=_PROBLEMS
    | problem_responses(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
    | {202: {"headers": {"Location": {"description": "The job.", "schema": {"type": "string"}}}}},
    dependencies=[may("admin"), Depends(idempotency_key)],
)
@operation("create", "write")
async def create_job(
    new: NewJob, request: Request, services: InjectedServices, response: Response
) -> JobEntry:
    """Queue a job; a worker takes it when one is free. Nothing happens where no `recoquest worker` runs."""
    arguments = await services.read(lambda session: new.arguments(session, services.settings))
    job = await queue_job(request, services, new.kind, arguments)
    response.headers["Location"] = location_of(request, job)
    return JobEntry.from_job(job)


@router.get("", summary="All jobs", responses=_PROBLEMS, dependencies=[may("admin")])
@operation(None, "read")
async def list_jobs(
    services: InjectedServices,
    state: Annotated[JobState | None, Query(description="Only those in this state.")] = None,
    kind: Annotated[JobKind | None, Query(description="Only those of this kind.")] = None,
    limit: _Limit = 50,
    cursor: Annotated[
        str | None,
        Query(max_length=_MAX_CURSOR, description="`next_cursor` of the page before.", examples=["41"]),
    ] = None,
) -> Jobs:
    """The jobs, the latest first, page by page, and how many workers are there to do them.

    New jobs come before the first page: none of the others comes twice, and none is passed over.
    """
    if cursor is not None and not cursor.isdecimal():
        raise CursorError("The cursor is not one of a page of jobs: send `next_cursor` of the page before.")
    before = None if cursor is None else int(cursor)
    jobs = await services.read(catalogue.list_jobs, state=state, kind=kind, limit=limit + 1, before=before)
    shown, more = jobs[:limit], jobs[limit:]
    workers = await services.threads.read(count_workers, services.settings)
    return Jobs(
        jobs=[JobEntry.from_job(job) for job in shown],
        workers=workers,
        next_cursor=str(shown[-1].id) if more else None,
    )


@router.get("/{job}", summary="One job", responses=_PROBLEMS, dependencies=[_OF_JOB])
@operation(None, "read")
async def get_job(job: Annotated[Job, Depends(path_job)]) -> JobEntry:
    """A job with its state; one that activates a generation is seen by administrators of its collection."""
    return JobEntry.from_job(job)


@router.post(
    "/{job}/cancel",
    summary="Cancel a job",
    status_code=HTTPStatus.ACCEPTED,
    responses=_PROBLEMS | problem_responses(HTTPStatus.CONFLICT),
    dependencies=[_OF_JOB, Depends(idempotency_key)],
)
@operation("change", "write")
async def cancel_job(job: _Number, services: InjectedServices) -> JobEntry:
    """End a job before its time; its worker may need some seconds to stop it. What it has written stays."""
    return JobEntry.from_job(await services.write(catalogue.cancel_job, job))


@router.get(
    "/{job}/events",
    summary="Follow a job",
    response_class=EventSourceResponse,
    responses=_PROBLEMS,
    dependencies=[_OF_JOB],
)
@operation(None, "read")
async def stream_job_events(
    job: Annotated[Job, Depends(path_job)], request: Request, services: InjectedServices
) -> AsyncIterator[ServerSentEvent]:
    """The job now and after every change, as server-sent events called `job`, until it has ended.

    A service that stops ends the stream. So does the end of the caller's key, token or session, within ten
    seconds; the last event is called `problem` then, and says why.
    """
    entry, permission, checked = JobEntry.from_job(job), Permission("admin", of_job=True), monotonic()
    yield ServerSentEvent(event="job", data=entry)
    while not job.has_ended:
        with suppress(TimeoutError):
            await asyncio.wait_for(services.stopping.wait(), _LOOK_SECONDS)
            return
        with suppress(CatalogueError):
            if monotonic() - checked >= _RECHECK_SECONDS:
                refusal, checked = await permission.recheck(request), monotonic()
                if refusal is not None:
                    yield ServerSentEvent(event="problem", data=problem_of(request, refusal))
                    return
            job = await services.read(catalogue.get_job, job.id)
        if JobEntry.from_job(job) != entry:
            entry = JobEntry.from_job(job)
            yield ServerSentEvent(event="job", data=entry)
