"""Search a collection by text, by an image that is sent, or by one that it holds."""

import time
from http import HTTPStatus
from typing import Annotated

import anyio
from fastapi import APIRouter, Depends, Query, Request

from app.disconnect import unless_disconnected
from app.encoding import Encoded
from app.intake import ImageQuery, check_length, parse_filter_text, read_image_query
from app.problems import problem_responses
from app.schemas import IMAGE_QUERY_BODY, SearchResponse, SimilarQuery, TextQuery
from app.searching import Asked, active_generation, answer
from app.state import InjectedServices
from index.filters import parse_filter

router = APIRouter(prefix="/v1/collections/{collection}", tags=["search"])

_PROBLEMS = (
    HTTPStatus.NOT_FOUND,
    HTTPStatus.CONFLICT,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
_ENCODING_PROBLEMS = (
    *_PROBLEMS,
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.GATEWAY_TIMEOUT,
)


async def image_query(request: Request, services: InjectedServices) -> ImageQuery:
    """Read the form of an image query within the service's limits."""
    return await read_image_query(request, services.settings)


@router.post("/search/text", summary="Search by text", responses=problem_responses(*_ENCODING_PROBLEMS))
async def search_text(
    collection: str, query: TextQuery, request: Request, services: InjectedServices
) -> SearchResponse:
    """Find the images that show what a text says; the answer tells if a long text was cut."""
    check_length("text", query.text, services.settings.max_text_length)
    condition = parse_filter(query.filter) if query.filter is not None else None
    active = await active_generation(services, collection)
    started = time.perf_counter()
    loaded = await services.encoders.of(active)
    encoded = await unless_disconnected(request, loaded.queue.encode_text(query.text))
    encode_ms = (time.perf_counter() - started) * 1000
    asked = Asked(query.k, condition, query.filter, query.cursor)
    return await answer(request, services, active, asked, encoded, encode_ms)


@router.post(
    "/search/image",
    summary="Search by an image",
    responses=problem_responses(*_ENCODING_PROBLEMS),
    openapi_extra=IMAGE_QUERY_BODY,
)
async def search_image(
    collection: str,
    query: Annotated[ImageQuery, Depends(image_query)],
    request: Request,
    services: InjectedServices,
) -> SearchResponse:
    """Find the images that look like one that is sent; the image is not kept."""
    condition, as_json = parse_filter_text(query.fields.filter, services.settings)
    active = await active_generation(services, collection)
    started = time.perf_counter()
    loaded = await services.encoders.of(active)
    prepared = await services.images.prepare(query.content, loaded.prepare)
    encoded = await unless_disconnected(request, loaded.queue.encode_image(prepared))
    encode_ms = (time.perf_counter() - started) * 1000
    asked = Asked(query.fields.k, condition, as_json, query.fields.cursor)
    return await answer(request, services, active, asked, encoded, encode_ms)


@router.get("/images/{image_id}/similar", summary="More like this", responses=problem_responses(*_PROBLEMS))
async def search_similar(
    collection: str,
    image_id: str,
    query: Annotated[SimilarQuery, Query()],
    request: Request,
    services: InjectedServices,
) -> SearchResponse:
    """Find the images that look like one of the collection, which is itself left out."""
    condition, as_json = parse_filter_text(query.filter, services.settings)
    active = await active_generation(services, collection)
    started = time.perf_counter()
    vector = await anyio.to_thread.run_sync(services.engine.vector_of, active, image_id)
    encode_ms = (time.perf_counter() - started) * 1000
    asked = Asked(query.k, condition, as_json, query.cursor, exclude=(image_id,))
    return await answer(request, services, active, asked, Encoded(vector), encode_ms)
