"""The generations of a collection: which there are, and which one is searched."""

from functools import partial
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, BackgroundTasks, Depends, Path, Request, Response

from app.edge.operations import operation
from app.edge.problems import problem_responses
from app.generations.activate import prefers_async, queue_swap, swap_to
from app.generations.schemas import Generation, Generations
from app.idempotency import IdempotentRoute, idempotency_key
from app.jobs.schemas import JobEntry
from app.permissions import may
from app.services import InjectedServices
from index.generations import models as listing
from index.generations.activation import generation_before, generation_of

router = APIRouter(prefix="/v1/collections/{collection}", tags=["generations"], route_class=IdempotentRoute)

_PROBLEMS = problem_responses(HTTPStatus.CONFLICT)
_LATER: dict[int | str, dict[str, Any]] = {
    202: {
        "model": JobEntry,
        "description": "A job does it: of `Prefer: respond-async`.",
        "headers": {"Location": {"description": "The job.", "schema": {"type": "string"}}},
    }
}
_Async = Annotated[bool, Depends(prefers_async)]
_Number = Annotated[int, Path(ge=1, lt=2**63, description="Number of the generation.")]


@router.get("/generations", summary="All generations", dependencies=[may("reader")])
async def list_generations(collection: str, services: InjectedServices) -> Generations:
    """Every generation that is kept, with its state and what was measured of it."""
    found = await services.threads.read(listing.list_generations, services.engine.home, collection)
    return Generations(generations=[Generation.of(info) for info in found])


@router.post(
    "/generations/{number}/activate",
    summary="Search in this generation",
    responses=_PROBLEMS | _LATER,
    response_model=Generation,
    dependencies=[may("admin"), Depends(idempotency_key)],
)
@operation("activate", work="change")
async def activate_generation(
    collection: str,
    number: _Number,
    request: Request,
    services: InjectedServices,
    later: BackgroundTasks,
    by_job: _Async,
) -> Generation | Response:
    """Load the generation and its encoder, tell other services, then search in it from one moment on.

    409 if it lacks many images or texts; with `Prefer: respond-async`, a job embeds them first.
    """
    find = partial(generation_of, collection=collection, number=number)
    if by_job:
        return await queue_swap(request, services, find)
    return await swap_to(request, services, find, later)


@router.post(
    "/rollback",
    summary="Search in the generation before",
    responses=_PROBLEMS | _LATER,
    response_model=Generation,
    dependencies=[may("admin"), Depends(idempotency_key)],
)
@operation("activate", work="change")
async def roll_back_collection(
    collection: str, request: Request, services: InjectedServices, later: BackgroundTasks, by_job: _Async
) -> Generation | Response:
    """Embed what the generation before lacks, and search in it again.

    409 if it lacks too much; with `Prefer: respond-async`, a job embeds all of it first.
    """
    find = partial(generation_before, collection=collection)
    if by_job:
        return await queue_swap(request, services, find)
    return await swap_to(request, services, find, later)
