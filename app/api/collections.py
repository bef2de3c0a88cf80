"""The collections that can be searched."""

from collections.abc import Sequence
from http import HTTPStatus

from fastapi import APIRouter

from app.access.permissions import GuardedRoute, InjectedPrincipal, may
from app.http.problems import problem_responses
from app.operations.services import InjectedServices
from app.schemas.collections import CollectionOverview, Collections, collection_from, overview_from
from index.engine import SearchEngine

router = APIRouter(prefix="/v1/collections", tags=["collections"], route_class=GuardedRoute)


@router.get(
    "",
    summary="All collections",
    responses=problem_responses(HTTPStatus.SERVICE_UNAVAILABLE),
    dependencies=[may("reader", somewhere=True)],
)
async def list_collections(services: InjectedServices, principal: InjectedPrincipal) -> Collections:
    """Every collection that the caller may read, with its active generation and the fields to filter by."""
    found = await services.threads.read(services.engine.collections)
    readable = [info for info in found if principal.may("reader", info.name)]
    return Collections(collections=[collection_from(info) for info in readable])


@router.get(
    "/{collection}",
    summary="One collection",
    responses=problem_responses(HTTPStatus.NOT_FOUND, HTTPStatus.SERVICE_UNAVAILABLE),
    dependencies=[may("reader")],
)
async def get_collection(collection: str, services: InjectedServices) -> CollectionOverview:
    """A collection with the values of its fields, and a few of its images to begin a search with."""
    hidden = services.settings.hidden_fields
    return await services.threads.read(_overview, services.engine, collection, hidden)


def _overview(engine: SearchEngine, collection: str, hidden: Sequence[str]) -> CollectionOverview:
    return overview_from(engine.collection(collection), engine.overview(collection), hidden)
