"""The generations of a collection: which there are, and which one is searched."""

import asyncio
import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Annotated

import anyio
from fastapi import APIRouter, BackgroundTasks, Depends, Path
from sqlalchemy.orm import Session

from app.generation_schemas import ActivatedGeneration, GenerationEntry, Generations
from app.problems import problem_responses
from app.security import require_admin
from app.state import InjectedServices, Services
from index.activation import activate, announce, generation_before, generation_of, require_complete
from index.bundles import registered_bundle
from index.generations import Generation
from index.history import list_generations
from index.retention import drop_old_generations

router = APIRouter(prefix="/v1/collections/{collection}", tags=["generations"])

_PROBLEMS = problem_responses(HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE)
_CHANGE_PROBLEMS = problem_responses(
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.CONFLICT,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
_Number = Annotated[int, Path(ge=1, lt=2**63, description="Number of the generation.")]
_Find = Callable[[Session], Generation]


@router.get("/generations", summary="All generations", responses=_PROBLEMS)
async def list_collection_generations(collection: str, services: InjectedServices) -> Generations:
    """Every generation that is kept, with its state and what was measured of it."""
    found = await anyio.to_thread.run_sync(list_generations, services.engine, collection)
    return Generations(generations=[GenerationEntry.of(info) for info in found])


@router.post(
    "/generations/{number}/activate",
    summary="Search in this generation",
    responses=_CHANGE_PROBLEMS,
    dependencies=[Depends(require_admin)],
)
async def activate_generation(
    collection: str, number: _Number, services: InjectedServices, later: BackgroundTasks
) -> ActivatedGeneration:
    """Load the generation and its encoder, tell other services, then search in it from one moment on."""
    find = partial(generation_of, collection=collection, number=number)
    return await _change(services, collection, find, later)


@router.post(
    "/rollback",
    summary="Search in the generation before",
    responses=_CHANGE_PROBLEMS,
    dependencies=[Depends(require_admin)],
)
async def roll_back(
    collection: str, services: InjectedServices, later: BackgroundTasks
) -> ActivatedGeneration:
    """Search again in the generation that was active before; refused while it lacks images."""
    return await _change(services, collection, partial(generation_before, collection=collection), later)


async def _change(
    services: Services, collection: str, find: _Find, later: BackgroundTasks
) -> ActivatedGeneration:
    started = time.monotonic()
    generation, texts = await anyio.to_thread.run_sync(_announced, services, find)
    await services.encoders.of(services.engine.describe(generation))
    await anyio.to_thread.run_sync(services.engine.warm, generation.id)
    # Other services look as often as this one, and load about as fast.
    await asyncio.sleep(services.settings.refresh_s + time.monotonic() - started)
    await anyio.to_thread.run_sync(_activated, services, generation, texts)
    later.add_task(drop_old_generations, services.engine, collection, services.settings.keep_generations)
    return ActivatedGeneration(
        collection=collection, number=generation.id, model=generation.model, digest=generation.digest
    )


def _announced(services: Services, find: _Find) -> tuple[Generation, bool]:
    """Check that a generation can be searched, and tell all services of it."""
    engine = services.engine
    with engine.catalogue.read() as session:
        generation = find(session)
        texts = registered_bundle(generation, engine.bundles_folder).config.text is not None
        require_complete(session, generation, texts=texts)
    with engine.catalogue.write() as session:
        announce(session, generation)
    return generation, texts


def _activated(services: Services, generation: Generation, texts: bool) -> None:
    with services.engine.catalogue.write() as session:
        activate(session, generation, texts=texts)
