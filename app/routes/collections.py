"""The collections that can be searched."""

from http import HTTPStatus

import anyio
from fastapi import APIRouter

from app.problems import problem_responses
from app.schemas import Collections, collection_from
from app.state import InjectedServices

router = APIRouter(prefix="/v1/collections", tags=["collections"])


@router.get("", summary="All collections", responses=problem_responses(HTTPStatus.SERVICE_UNAVAILABLE))
async def list_collections(services: InjectedServices) -> Collections:
    """Every collection with its active generation and the fields that a filter may name."""
    found = await anyio.to_thread.run_sync(services.engine.collections)
    return Collections(collections=[collection_from(info) for info in found])
