"""Generations of a collection, with their activation, and registered models."""

import time
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, BackgroundTasks, Depends, Header, Path, Request, Response
from fastapi.responses import JSONResponse
from sqlalchemy.orm import Session

from app.audit.requests import Noted, note
from app.edge.operations import operation, root_of
from app.edge.problems import Kind, RequestError, problem_responses
from app.edge.schemas import DIGEST_PATTERN
from app.generations.schemas import (
    Generation,
    Generations,
    ModelCard,
    Models,
    ModelSummary,
    NewModel,
    model_card,
)
from app.idempotency import IdempotentRoute, idempotency_key
from app.jobs.folder import JobFolder
from app.jobs.kinds import bundle_of
from app.jobs.queue import REINDEX, activation_arguments, refuse_second_embedding
from app.jobs.schemas import JobEntry, location_of, queue_job
from app.permissions import may
from app.services import InjectedServices, Services
from index.catalogue.collections import Generation as Found
from index.catalogue.jobs import get_job
from index.errors import GenerationError, IncompleteGenerationError, UnknownGenerationError
from index.files.bundles import registered_bundle
from index.generations import models as catalogue
from index.generations.activation import (
    generation_before,
    generation_of,
    require_nearly_complete,
    try_drop_old_generations,
)
from index.generations.reindex import swap

router = APIRouter(prefix="/v1/collections/{collection}", tags=["generations"], route_class=IdempotentRoute)
models = APIRouter(prefix="/v1/models", tags=["models"], route_class=IdempotentRoute)

_ASYNC: Final = "respond-async"
_NO_MODEL = Kind("no-model", "The job has made no model", HTTPStatus.CONFLICT)
_PROBLEMS = problem_responses(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)
_CHANGE_PROBLEMS = problem_responses(HTTPStatus.CONFLICT)
_LATER: dict[int | str, dict[str, Any]] = {
    202: {
        "model": JobEntry,
        "description": "A job does it: of `Prefer: respond-async`.",
        "headers": {"Location": {"description": "The job.", "schema": {"type": "string"}}},
    }
}
_Number = Annotated[int, Path(ge=1, lt=2**63, description="Number of the generation.")]
_Digest = Annotated[str, Path(pattern=DIGEST_PATTERN, description="Digest of the model.")]
_Find = Callable[[Session], Found]


async def prefers_async(
    prefer: Annotated[
        str | None,
        Header(
            description="`respond-async`: a job does it, and the answer is 202 with its address (RFC 7240)."
        ),
    ] = None,
) -> bool:
    """Whether the caller would rather have a job than wait."""
    return any(part.partition(";")[0].strip().lower() == _ASYNC for part in (prefer or "").split(","))


_Async = Annotated[bool, Depends(prefers_async)]


@router.get("/generations", summary="All generations", dependencies=[may("reader")])
@operation(None, "read")
async def list_generations(collection: str, services: InjectedServices) -> Generations:
    """Every generation that is kept, with its state and measurements."""
    infos = await services.threads.read(catalogue.list_generations, services.engine.home, collection)
    return Generations(generations=[Generation.from_info(info) for info in infos])


@router.post(
    "/generations/{number}/activate",
    summary="Search in this generation",
    responses=_CHANGE_PROBLEMS | _LATER,
    response_model=Generation,
    dependencies=[may("admin"), Depends(idempotency_key)],
)
@operation("activate", "change")
async def activate_generation(
    collection: str,
    number: _Number,
    request: Request,
    services: InjectedServices,
    later: BackgroundTasks,
    by_job: _Async,
) -> Generation | Response:
    """Load the generation and its encoder, notify other services, then switch searches to it at once.

    409 if it lacks many images or texts; with `Prefer: respond-async`, a job embeds them first.
    """
    find = partial(generation_of, collection=collection, number=number)
    return await (_queue_swap(request, services, find) if by_job else _swap(request, services, find, later))


@router.post(
    "/rollback",
    summary="Search in the generation before",
    responses=_CHANGE_PROBLEMS | _LATER,
    response_model=Generation,
    dependencies=[may("admin"), Depends(idempotency_key)],
)
@operation("activate", "change")
async def roll_back_collection(
    collection: str, request: Request, services: InjectedServices, later: BackgroundTasks, by_job: _Async
) -> Generation | Response:
    """Embed what the generation before lacks, and search in it again.

    409 if it lacks too much; with `Prefer: respond-async`, a job embeds all of it first.
    """
    find = partial(generation_before, collection=collection)
    return await (_queue_swap(request, services, find) if by_job else _swap(request, services, find, later))


async def _swap(request: Request, services: Services, find: _Find, later: BackgroundTasks) -> Generation:
    """Search in a generation when it and its encoder are loaded; what it lacks is embedded first."""
    started = time.monotonic()
    generation = await services.read(_nearly_complete, services, find)
    loaded = await services.encoders.get(services.engine.describe(generation))
    collection = generation.collection
    try:
        await services.threads.background(
            swap,
            services.engine,
            generation,
            loaded.encoder,
            # Other services refresh as often as this one, and load about as fast.
            preload_s=services.settings.refresh_s + time.monotonic() - started,
            show_progress=False,
        )
    except IncompleteGenerationError:
        raise
    except GenerationError:
        raise UnknownGenerationError(
            f"Generation {generation.id} of {collection!r} was dropped meanwhile, and nothing was changed."
        ) from None
    note(request, Noted(collection=collection, model=generation.digest, generation=generation.id))
    later.add_task(
        services.threads.write,
        try_drop_old_generations,
        services.engine.home,
        collection,
        services.settings.keep_generations,
    )
    return Generation.from_info(await services.read(catalogue.describe_generation, generation.id))


def _nearly_complete(session: Session, services: Services, find: _Find) -> Found:
    """Return a generation that can be searched but for what was written lately."""
    generation = find(session)
    texts = registered_bundle(generation, services.engine.home.bundles_folder).config.text is not None
    require_nearly_complete(session, generation, texts=texts)
    return generation


async def _queue_swap(request: Request, services: Services, find: _Find) -> JSONResponse:
    """Queue the job that gives a generation all that it lacks and activates it."""
    generation = await services.read(find)
    collection = generation.collection
    arguments = activation_arguments(collection, generation.id)
    only = partial(refuse_second_embedding, collection=collection)
    job = await queue_job(request, services, REINDEX, arguments, check=only)
    # The command's own event records the activation.
    note(
        request,
        Noted(action="create", collection=collection, generation=generation.id, details={"job": job.id}),
    )
    headers = {"Location": location_of(request, job), "Preference-Applied": _ASYNC}
    return JSONResponse(JobEntry.from_job(job).model_dump(mode="json"), HTTPStatus.ACCEPTED, headers)


@models.get("", summary="All models", dependencies=[may("reader")])
@operation(None, "read")
async def list_models(services: InjectedServices) -> Models:
    """Every registered encoder with its digest and the collections searched with it."""
    infos = await services.threads.read(services.engine.models)
    loaded = services.encoders.loaded()
    return Models(models=[ModelSummary.from_info(info, loaded=info.digest in loaded) for info in infos])


@models.get("/{digest}", summary="One model", responses=_PROBLEMS, dependencies=[may("reader")])
@operation(None, "read")
async def get_model(digest: _Digest, services: InjectedServices) -> ModelCard:
    """Origin of a model, its metrics, and the generations that it has embedded."""
    return await _card(services, digest)


@models.post(
    "",
    summary="Register a model",
    status_code=HTTPStatus.CREATED,
    responses=_PROBLEMS
    | _CHANGE_PROBLEMS
    | {201: {"headers": {"Location": {"description": "The model.", "schema": {"type": "string"}}}}},
    dependencies=[may("admin"), Depends(idempotency_key)],
)
@operation("create", "write")
async def register_model(
    new: NewModel, request: Request, services: InjectedServices, response: Response
) -> ModelCard:
    """Take the model of a training or retraining job, so that collections can be embedded with it."""
    job = await services.read(get_job, new.job)
    bundle = bundle_of(job.kind, JobFolder.for_job(services.settings, job.id).path)
    if bundle is None or not await services.threads.read(bundle.is_dir):
        raise RequestError(
            _NO_MODEL, f"Job {job.id} ({job.kind}) has made no model: give a train or retrain job that has."
        )
    registered = await services.threads.write(catalogue.register_model, services.engine.home, bundle)
    response.headers["Location"] = f"{root_of(request.scope)}/v1/models/{registered.digest}"
    return await _card(services, registered.digest)


async def _card(services: Services, digest: str) -> ModelCard:
    loaded = digest in services.encoders.loaded()
    return await services.threads.read(model_card, services.engine, digest, loaded=loaded)
