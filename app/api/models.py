"""Registered models: which there are, where they come from, and which one a collection is searched with."""

from functools import partial
from http import HTTPStatus
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, BackgroundTasks, Depends, Path, Request, Response
from sqlalchemy.orm import Session

from app.access.permissions import may
from app.http.addresses import root_of
from app.http.deprecation import REPLACED, deprecation_headers
from app.http.problem_kinds import Kind
from app.http.problems import RequestError, problem_responses
from app.jobs.folder import JobFolder
from app.jobs.kinds import bundle_of
from app.operations.activate import swap_to
from app.operations.model_card import model_card
from app.operations.services import InjectedServices, Services
from app.operations.writes.idempotency import IdempotentRoute, idempotency_key
from app.schemas.generations import Generation
from app.schemas.models import DIGEST_PATTERN, ModelCard, ModelPlace, Models, ModelSummary, NewModel
from index.catalogue import collections
from index.catalogue.jobs import get_job
from index.generations import models
from index.generations.activation import generation_before
from index.generations.models import generation_by, require_model

router = APIRouter(prefix="/v1/models", tags=["models"], route_class=IdempotentRoute)

_NO_MODEL = Kind("no-model", "The job has made no model", HTTPStatus.CONFLICT)
_NOT_SEARCHED = Kind("model-not-searched", "The collection is searched with another", HTTPStatus.CONFLICT)
_PROBLEMS = problem_responses(
    HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.SERVICE_UNAVAILABLE
)
_CHANGE_PROBLEMS = _PROBLEMS | problem_responses(
    HTTPStatus.UNAUTHORIZED, HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.FORBIDDEN, HTTPStatus.CONFLICT
)
_Digest = Annotated[str, Path(pattern=DIGEST_PATTERN, description="Digest of the model.")]


@router.get(
    "",
    summary="All models",
    responses=problem_responses(HTTPStatus.SERVICE_UNAVAILABLE),
    dependencies=[may("reader")],
)
async def list_models(services: InjectedServices) -> Models:
    """Every registered encoder with its digest and the collections searched with it."""
    found = await services.threads.read(services.engine.models)
    loaded = services.encoders.loaded()
    return Models(models=[ModelSummary.of(info, loaded=info.digest in loaded) for info in found])


@router.get("/{digest}", summary="One model", responses=_PROBLEMS, dependencies=[may("reader")])
async def get_model(digest: _Digest, services: InjectedServices) -> ModelCard:
    """Origin of a model, its metrics, and the generations that it has embedded."""
    return await _card(services, digest)


@router.post(
    "",
    summary="Register a model",
    status_code=HTTPStatus.CREATED,
    responses=_CHANGE_PROBLEMS
    | {201: {"headers": {"Location": {"description": "The model.", "schema": {"type": "string"}}}}},
    dependencies=[may("admin"), Depends(idempotency_key)],
)
async def register_model(
    new: NewModel, request: Request, services: InjectedServices, response: Response
) -> ModelCard:
    """Take the model of a training or retraining job, so that collections can be embedded with it."""
    digest = await services.threads.write(_registered, services, new.job)
    response.headers["Location"] = f"{root_of(request.scope)}/v1/models/{digest}"
    return await _card(services, digest)


@router.post(
    "/{digest}/activate",
    summary="Search with this model",
    deprecated=True,
    responses=_CHANGE_PROBLEMS | REPLACED,
    dependencies=[may("admin"), Depends(idempotency_key)],
)
async def activate_model(
    digest: _Digest,
    place: ModelPlace,
    request: Request,
    services: InjectedServices,
    response: Response,
    later: BackgroundTasks,
) -> Generation:
    """Embed what the generation by this model lacks, and search in it: activate the generation instead.

    The card of a model has the numbers of its generations.
    """
    find = partial(generation_by, collection=place.collection, digest=digest)
    generation = await swap_to(request, services, find, later)
    path = f"/v1/collections/{quote(place.collection, safe='')}/generations/{generation.number}/activate"
    response.headers.update(deprecation_headers(request, path, "successor-version"))
    return generation


@router.post(
    "/{digest}/rollback",
    summary="Take this model back",
    deprecated=True,
    responses=_CHANGE_PROBLEMS | REPLACED,
    dependencies=[may("admin"), Depends(idempotency_key)],
)
async def roll_back_model(
    digest: _Digest,
    place: ModelPlace,
    request: Request,
    services: InjectedServices,
    response: Response,
    later: BackgroundTasks,
) -> Generation:
    """Search a collection as before it was searched with this model: roll back the collection instead."""
    find = partial(_generation_before, collection=place.collection, digest=digest)
    generation = await swap_to(request, services, find, later)
    path = f"/v1/collections/{quote(place.collection, safe='')}/rollback"
    response.headers.update(deprecation_headers(request, path, "successor-version"))
    return generation


async def _card(services: Services, digest: str) -> ModelCard:
    loaded = digest in services.encoders.loaded()
    return await services.threads.read(model_card, services.engine, digest, loaded=loaded)


def _registered(services: Services, number: int) -> str:
    """Register what a job has made; return its digest."""
    engine = services.engine
    with engine.home.catalogue.read() as session:
        job = get_job(session, number)
    bundle = bundle_of(job.kind, JobFolder.of(services.settings, number).path)
    if bundle is None or not bundle.is_dir():
        raise RequestError(
            _NO_MODEL, f"Job {number} ({job.kind}) has made no model: give a train or retrain job that has."
        )
    return models.register_model(engine.home, bundle).digest


def _generation_before(session: Session, collection: str, digest: str) -> collections.Generation:
    model = require_model(session, digest)
    active, _ = collections.require_active(session, collection)
    if active.digest != digest:
        raise RequestError(
            _NOT_SEARCHED,
            f"Collection {collection!r} is searched with {active.model!r} (generation {active.id}), not with "
            f"{model.name!r}, so there is nothing to take back.",
        )
    return generation_before(session, collection)
