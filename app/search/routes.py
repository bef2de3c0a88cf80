"""Search a collection: by text, images, and examples of what is wanted and what is not."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from app.edge.admission import count_as
from app.edge.headers import preferred
from app.edge.operations import operation
from app.edge.problems import NOT_ACCEPTABLE, RequestError, problem_responses
from app.permissions import GuardedRoute, may
from app.search.read_search import SentSearch, check_batch, read_search
from app.search.schemas.page import SearchResponse
from app.search.schemas.query import SEARCH_BODY, BatchQuery
from app.search.schemas.similarity_map import SimilarityMap
from app.search.search import answer_search
from app.search.search_batch import BatchResponse, answer_batch
from app.search.similarity_map import OVERLAY_MEDIA_TYPE, draw_overlay, make_map
from app.services import InjectedServices

router = APIRouter(
    prefix="/v1/collections/{collection}",
    tags=["search"],
    dependencies=[may("reader")],
    route_class=GuardedRoute,
)

_PROBLEMS = problem_responses(
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.CONFLICT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.GATEWAY_TIMEOUT,
)


async def sent_search(request: Request, services: InjectedServices) -> SentSearch:
    """Read the search within the service's limits."""
    return await read_search(request, services.settings)


@router.post(
    "/search",
    summary="Search",
    response_model=SearchResponse,
    responses=_PROBLEMS,
    openapi_extra=SEARCH_BODY,
)
@operation("search", work="search")
async def search_images(
    collection: str,
    sent: Annotated[SentSearch, Depends(sent_search)],
    request: Request,
    services: InjectedServices,
) -> SearchResponse:
    """Find images, or their texts, by a text, by image files and by examples, alone or together.

    Send JSON; to send image files, a form with the same JSON in the field `query`. A file that is sent is not
    kept. An image of the collection that is an example is left out of the hits.
    """
    return await answer_search(request, services, collection, sent)


@router.post(
    "/images/{image_id}/similarity-map",
    summary="What matched",
    response_model=SimilarityMap,
    responses={
        **_PROBLEMS,
        **problem_responses(HTTPStatus.NOT_ACCEPTABLE),
        200: {"content": {OVERLAY_MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}},
    },
    openapi_extra=SEARCH_BODY,
)
@operation("view", work="image-search")
async def map_similarity(
    collection: str,
    image_id: str,
    sent: Annotated[SentSearch, Depends(sent_search)],
    request: Request,
    services: InjectedServices,
) -> SimilarityMap | Response:
    """Tell which parts of an image fit a search, of which only text, images and examples count here.

    Send the search as to `/search`. The answer is a small grid of numbers, what each region adds to the
    cosine of image and query, or with `Accept: image/png` an overlay for the picture, more opaque where it
    fits more. Models without regions are refused (`no-regions`).
    """
    accept = ",".join(request.headers.getlist("accept"))
    wanted = preferred(accept, ["application/json", OVERLAY_MEDIA_TYPE])
    if wanted is None:
        raise RequestError(NOT_ACCEPTABLE, f"Accept application/json or {OVERLAY_MEDIA_TYPE}.")
    found = await make_map(request, services, collection, image_id, sent)
    if wanted == OVERLAY_MEDIA_TYPE:
        overlay = await services.threads.read(draw_overlay, found)
        return Response(overlay, media_type=OVERLAY_MEDIA_TYPE, headers={"Cache-Control": "no-store"})
    return found


@router.post(
    "/search/batch",
    summary="Search many times",
    response_model=BatchResponse,
    responses=_PROBLEMS | {207: {"model": BatchResponse, "description": "Some have problems."}},
)
@operation("search", work="search")
async def search_batch(
    collection: str, query: BatchQuery, request: Request, services: InjectedServices
) -> Response:
    """Answer up to 64 searches together, which takes less than one by one; texts alone, no image files.

    Each is answered as if it had been sent alone, in the same order: by a page, or by the problem that it
    would have had, such as an example that is not there. A request that is not of this form is refused whole.
    """
    check_batch(query, services.settings)
    count_as(request.scope, len(query.searches))
    answer = await answer_batch(request, services, collection, query.searches)
    status = HTTPStatus.MULTI_STATUS if any(one.problem for one in answer.results) else HTTPStatus.OK
    return Response(answer.model_dump_json(), status_code=status, media_type="application/json")
