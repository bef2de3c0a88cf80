"""Registered models: which there are, where they come from, and which one a collection is searched with."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request, Response

from app.edge.addresses import root_of
from app.edge.operations import operation
from app.edge.problems import Kind, RequestError, problem_responses
from app.generations.model_card import model_card
from app.generations.model_schemas import ModelCard, Models, ModelSummary, NewModel
from app.idempotency import IdempotentRoute, idempotency_key
from app.jobs.folder import JobFolder
from app.jobs.kinds import bundle_of
from app.jobs.schemas import DIGEST_PATTERN
from app.permissions import may
from app.services import InjectedServices, Services
from index.catalogue.jobs import get_job
from index.generations import models

router = APIRouter(prefix="/v1/models", tags=["models"], route_class=IdempotentRoute)

_NO_MODEL = Kind("no-model", "The job has made no model", HTTPStatus.CONFLICT)
_PROBLEMS = problem_responses(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)
_CHANGE_PROBLEMS = _PROBLEMS | problem_responses(HTTPStatus.CONFLICT)
_Digest = Annotated[str, Path(pattern=DIGEST_PATTERN, description="Digest of the model.")]


@router.get(
    "",
    summary="All models",
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
@operation("create")
async def register_model(
    new: NewModel, request: Request, services: InjectedServices, response: Response
) -> ModelCard:
    """Take the model of a training or retraining job, so that collections can be embedded with it."""
    digest = await services.threads.write(_registered, services, new.job)
    response.headers["Location"] = f"{root_of(request.scope)}/v1/models/{digest}"
    return await _card(services, digest)


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
