"""Lists of a collection's images, and counts of what they hold, without a query."""

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from app.access.permissions import GuardedRoute, may
from app.audit.noted import Noted, note
from app.audit.trail import filter_parts
from app.collections.schemas import MAX_CONTAINING, CountedFields, FacetQuery, counted_from
from app.edge.http.problems import problem_responses
from app.edge.operations import operation
from app.search.audit import shown
from app.search.read_search import read_count, read_filter
from app.search.schemas.hits import DEFAULT_PARTS, HIT_PARTS
from app.search.schemas.page import Count, ImageList, image_list_from
from app.search.schemas.query import MAX_CURSOR_LENGTH, MAX_LIMIT, CountQuery
from app.services import InjectedServices, Services
from index.engine import SearchEngine
from index.filters.grammar import MAX_FIELD_NAME_LENGTH
from index.search.request import SearchRequest
from index.search.results import HitDetails, HitPart, SearchPage, read_details

router = APIRouter(
    prefix="/v1/collections/{collection}",
    tags=["collections"],
    dependencies=[may("reader")],
    route_class=GuardedRoute,
)

_PROBLEMS = problem_responses(HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY)


class _Filtered(BaseModel):
    # A parameter that is unknown may be a slip, and the answer one to another question.
    model_config = ConfigDict(extra="forbid", frozen=True)

    filter: str | None = Field(
        default=None, description="A filter as JSON.", examples=['{"field": "view", "eq": "PA"}']
    )


class _ImagesWanted(_Filtered):
    cursor: str | None = Field(
        default=None,
        max_length=MAX_CURSOR_LENGTH,
        description="`next_cursor` of the page before; the filter must be the same.",
    )
    limit: int = Field(default=100, ge=1, le=MAX_LIMIT, description="Number of images on a page.")
    parts: list[HitPart] = Field(
        default=[*DEFAULT_PARTS],
        alias="with",
        max_length=len(HIT_PARTS),
        description="What is told of each image: texts, findings, labels, metadata, report, vector.",
    )


class _FieldsWanted(_Filtered):
    field: str | None = Field(
        default=None,
        max_length=MAX_FIELD_NAME_LENGTH,
        description="Only this field, which may be id or group.",
    )
    containing: str = Field(
        default="",
        max_length=MAX_CONTAINING,
        description="Only values that contain this text, in whatever case; goes with field.",
    )


@router.get("/images", summary="All images", responses=_PROBLEMS)
@operation("browse")
async def list_images(
    collection: str,
    wanted: Annotated[_ImagesWanted, Query()],
    request: Request,
    services: InjectedServices,
) -> ImageList:
    """The images that pass a filter, or all, in the order in which they were added, page by page.

    A page begins behind the last image of the page before: none comes twice and none is passed over, whatever
    is written meanwhile.
    """
    asked = SearchRequest(
        k=wanted.limit, filter=read_filter(wanted.filter, services.settings), cursor=wanted.cursor
    )
    page, details = await services.threads.read(_listed, services.engine, collection, asked, wanted.parts)
    note(request, Noted(objects=shown(page), query=_query(wanted.filter)))
    prefix = request.scope.get("root_path", "")
    return image_list_from(page, collection, prefix=prefix, parts=wanted.parts, details=details)


@router.post("/count", summary="Count", responses=_PROBLEMS)
@operation("browse", work="read")
async def count_images(collection: str, query: CountQuery, services: InjectedServices) -> Count:
    """How many images, texts or groups pass a filter and have keywords, exactly, however many there are."""
    asked = read_count(query, services.settings)
    return Count(count=await services.threads.read(services.engine.count, collection, asked))


@router.get("/facets", summary="Counts of values", responses=_PROBLEMS)
@operation("browse")
async def count_values(
    collection: str,
    wanted: Annotated[_FieldsWanted, Query()],
    request: Request,
    services: InjectedServices,
) -> CountedFields:
    """How many images pass a filter, and the values of their fields with their counts.

    Of a field with millions of texts, the most frequent ones of the collection are counted alone.
    Logs of proxies keep addresses: where a value may name a person, `POST` the same instead.
    """
    condition = read_filter(wanted.filter, services.settings)
    query = _query(wanted.filter)
    return await _count_values(collection, SearchRequest(filter=condition), wanted, query, request, services)


@router.post("/facets", summary="Counts of values, by a body", responses=_PROBLEMS)
@operation("browse", work="read")
async def count_facets(
    collection: str, query: FacetQuery, request: Request, services: InjectedServices
) -> CountedFields:
    """The same as GET, and of keywords, in the body, which no log of a proxy keeps."""
    asked = read_count(query.counted(), services.settings)
    parts = filter_parts(query.filter) | ({"keywords": [query.keywords]} if query.keywords else {})
    return await _count_values(collection, asked, query, parts, request, services)


async def _count_values(
    collection: str,
    asked: SearchRequest,
    wanted: _FieldsWanted | FacetQuery,
    query: Mapping[str, Sequence[str]],
    request: Request,
    services: Services,
) -> CountedFields:
    words = None if asked.words is None and asked.words_state is None else asked
    found = await services.threads.read(
        services.engine.facets, collection, asked.filter, wanted.field, wanted.containing, words
    )
    note(request, Noted(query=query, details={"field": wanted.field}))
    return counted_from(found)


def _listed(
    engine: SearchEngine, collection: str, asked: SearchRequest, parts: Sequence[HitPart]
) -> tuple[SearchPage, list[HitDetails]]:
    # Without an active generation there are no vectors, which is an error where they are asked for.
    active = engine.active(collection) if "vector" in parts else None
    page = engine.browse(collection, asked)
    return page, read_details(engine.home.catalogue, active, collection, page.hits, parts)


def _query(condition: str | None) -> dict[str, list[str]]:
    return filter_parts(None if condition is None else json.loads(condition))
