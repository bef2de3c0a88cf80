"""The collections that can be searched."""

from collections.abc import Sequence
from http import HTTPStatus

from fastapi import APIRouter

from app.http.problems import problem_responses
from app.operations.services import InjectedServices
from app.schemas.collections import CollectionOverview, Collections, collection_from, overview_from
from index.engine import SearchEngine

router = APIRouter(prefix="/v1/collections", tags=["collections"])


@router.get("", summary="All collections", responses=problem_responses(HTTPStatus.SERVICE_UNAVAILABLE))
async def list_collections(services: InjectedServices) -> Collections:
    """Every collection with its active generation and the fields that a filter may name."""
    found = await services.threads.read(services.engine.collections)
    return Collections(collections=[collection_from(info) for info in found])


@router.get(
    "/{collection}",
    summary="One collection",
    responses=problem_responses(HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE),
)
async def get_collection(collection: str, services: InjectedServices) -> CollectionOverview:
    """A collection with the values of its fields, and a few of its images to begin a search with."""
    hidden = services.settings.hidden_fields
    return await services.threads.read(_overview, services.engine, collection, hidden)


def _overview(engine: SearchEngine, collection: str, hidden: Sequence[str]) -> CollectionOverview:
    return overview_from(engine.collection(collection), engine.overview(collection), hidden)
