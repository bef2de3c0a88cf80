"""The encoders that have indexed something."""

from http import HTTPStatus

import anyio
from fastapi import APIRouter

from app.problems import problem_responses
from app.schemas import Models, model_from
from app.state import InjectedServices

router = APIRouter(prefix="/v1/models", tags=["models"])


@router.get("", summary="All models", responses=problem_responses(HTTPStatus.SERVICE_UNAVAILABLE))
async def list_models(services: InjectedServices) -> Models:
    """Every registered encoder with its digest and the collections searched with it."""
    found = await anyio.to_thread.run_sync(services.engine.models)
    loaded = services.encoders.loaded()
    return Models(models=[model_from(info, loaded=info.digest in loaded) for info in found])
