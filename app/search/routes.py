"""Search a collection, list its images, and count what they hold."""

import io
import time
from http import HTTPStatus
from operator import attrgetter
from typing import Annotated, Final

import numpy as np
from fastapi import APIRouter, Depends, Query, Request, Response
from PIL import Image

from app.audit.requests import Noted, note
from app.collections.schemas import CountedFields
from app.concurrency import unless_disconnected
from app.edge.admission import count_as
from app.edge.headers import preferred
from app.edge.operations import operation
from app.edge.problems import NOT_ACCEPTABLE, Problem, RequestError, answer_recoquest_error, problem_responses
from app.edge.request_context import milliseconds_since_arrival
from app.permissions import GuardedRoute, Handler, may
from app.search.read_search import check_lengths, read_condition, read_search
from app.search.schemas import (
    SEARCH_BODY,
    BatchQuery,
    BatchResponse,
    BatchResult,
    Count,
    CountQuery,
    FacetQuery,
    FieldsQuery,
    ImageList,
    ImagesQuery,
    SearchResponse,
    SimilarityMap,
    TookMs,
)
from app.search.search import (
    MadePart,
    Search,
    SearchResult,
    find_batch,
    make_batch,
    make_parts,
    note_queries,
    stored_regions,
)
from app.services import InjectedServices, Services, services_of
from index.engine import SearchEngine
from index.errors import NoActiveGenerationError, QueryError
from index.files.renditions import scaled_size
from index.search.results import ActiveGeneration


class SearchRoute(GuardedRoute):
    """The route of searches: the framework takes longer to make its arguments than the engine to search."""

    def answering(self, handle: Handler) -> Handler:  # noqa: ARG002
        """Return the handler of a search."""

        async def answer(request: Request) -> Response:
            services = services_of(request)
            sent = await read_search(request, services)
            return await search_images(request.path_params["collection"], sent, request, services)

        return answer


router = APIRouter(
    prefix="/v1/collections/{collection}",
    tags=["search"],
    dependencies=[may("reader")],
    route_class=GuardedRoute,
)
browse_router = APIRouter(
    prefix="/v1/collections/{collection}",
    tags=["collections"],
    dependencies=[may("reader")],
    route_class=GuardedRoute,
)

searching = APIRouter(
    prefix="/v1/collections/{collection}",
    tags=["search"],
    dependencies=[may("reader")],
    route_class=SearchRoute,
)

ENCODING_PROBLEMS = problem_responses(
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.GATEWAY_TIMEOUT,
)
_BROWSE_PROBLEMS = problem_responses(HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY)
_PROBLEMS = ENCODING_PROBLEMS | _BROWSE_PROBLEMS | problem_responses(HTTPStatus.INTERNAL_SERVER_ERROR)
_IMAGE_ID: Final = attrgetter("image.id")
_GIVEN: Final = attrgetter("vector")
_OVERLAY_MEDIA_TYPE: Final = "image/png"
_OVERLAY_SIDE: Final = 512
# Orange, which people with red-green color blindness also distinguish from gray; the rest is opacity.
_COLOUR: Final = (255, 153, 0)
_MOST_OPAQUE: Final = 190


@searching.post(
    "/search",
    response_model=SearchResponse,
    summary="Search",
    responses=_PROBLEMS,
    openapi_extra=SEARCH_BODY,
)
@operation("search", "search")
async def search_images(
    collection: str,
    sent: Annotated[Search, Depends(read_search)],
    request: Request,
    services: InjectedServices,
) -> Response:
    """Find images, or their texts, by a text, by image files and by examples, alone or together.

    Send JSON; to send image files, a form with the same JSON in the field `query`. A file that is sent is not
    kept. An image of the collection that is an example is left out of the hits.
    """
    # Taken before anything is encoded, so that query and collection are of one model.
    active = services.engine.cached_active(collection)
    is_local = active is not None
    if active is None:
        active = await services.threads.read(_active, services.engine, collection, sent)
    started = time.perf_counter()
    made: list[MadePart] = []
    if active is not None:
        making = make_parts(services, active, sent.sources)
        # Given vectors are there at once.
        waits = None in map(_GIVEN, sent.sources)
        made = await (unless_disconnected(request, making) if waits else making)
    encoded = time.perf_counter()
    if active is not None and is_local:
        kind = collection, active.generation, sent.shape
        result = await services.threads.read_by_cost(
            kind, sent.find, services.engine, collection, active, made
        )
    else:
        result = await services.threads.read(sent.find, services.engine, collection, active, made)
    seconds = time.perf_counter() - encoded
    services.metrics.searched(seconds)
    await note_queries(
        request,
        services,
        active,
        [sent],
        map(_IMAGE_ID, result.page.hits),
        target=sent.query.target,
        limit=sent.query.limit,
        later_page=isinstance(sent.query.cursor, str),
    )
    took = TookMs.model_construct(
        encode=round(1000 * (encoded - started), 3),
        search=round(1000 * seconds, 3),
        total=round(milliseconds_since_arrival(request.scope), 3),
    )
    answer = result.answer(took, request.scope.get("root_path", ""))
    return Response(answer.model_dump_json(by_alias=True), media_type="application/json")


def _active(engine: SearchEngine, collection: str, sent: Search) -> ActiveGeneration | None:
    """Return the active generation; None where there is none and a list needs none."""
    try:
        return engine.active(collection)
    except NoActiveGenerationError:
        if sent.sources or "vector" in sent.query.parts:
            raise
        return None


@router.post(
    "/images/{image_id}/similarity-map",
    summary="What matched",
    response_model=SimilarityMap,
    responses={
        **_PROBLEMS,
        **problem_responses(HTTPStatus.NOT_ACCEPTABLE),
        200: {"content": {_OVERLAY_MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}}}},
    },
    openapi_extra=SEARCH_BODY,
)
@operation("view", "image-search")
async def map_similarity(
    collection: str,
    image_id: str,
    sent: Annotated[Search, Depends(read_search)],
    request: Request,
    services: InjectedServices,
) -> SimilarityMap | Response:
    """Return which parts of an image fit a search, of which only text, images and examples count here.

    Send the search as to `/search`. The answer is a small grid of numbers, what each region adds to the
    cosine of image and query, or with `Accept: image/png` an overlay for the picture, more opaque where it
    fits more. Models without regions are refused (`no-regions`).
    """
    accept = ",".join(request.headers.getlist("accept"))
    media_type = preferred(accept, ["application/json", _OVERLAY_MEDIA_TYPE])
    if media_type is None:
        raise RequestError(NOT_ACCEPTABLE, f"Accept application/json or {_OVERLAY_MEDIA_TYPE}.")
    if not sent.sources:
        raise QueryError("There is nothing to compare the image with: give a text, an image or an example.")
    active = await services.threads.read(services.engine.active, collection)
    image, grid = await unless_disconnected(request, stored_regions(services, active, image_id))
    made = await unless_disconnected(request, make_parts(services, active, sent.sources))
    entry = await services.threads.read(sent.entry, services.engine, active, made)
    await note_queries(request, services, active, [sent], [image.id])
    similarity_map = SimilarityMap.from_grid(image, active, grid, entry.vector)
    if media_type == _OVERLAY_MEDIA_TYPE:
        overlay = await services.threads.read(_draw_overlay, similarity_map)
        return Response(overlay, media_type=_OVERLAY_MEDIA_TYPE, headers={"Cache-Control": "no-store"})
    return similarity_map


def _draw_overlay(similarity_map: SimilarityMap) -> bytes:
    """Draw a map as a PNG in the shape of its picture, to overlay it: more opaque where it matches more."""
    size = scaled_size(similarity_map.picture_width, similarity_map.picture_height, _OVERLAY_SIDE)
    values, area = np.array(similarity_map.values, np.float32), similarity_map.area
    span = max(similarity_map.largest - similarity_map.smallest, float(np.finfo(np.float32).tiny))
    levels = Image.fromarray((values - similarity_map.smallest) / span * _MOST_OPAQUE)
    across, down = similarity_map.width / area.width, similarity_map.height / area.height
    # The picture in cells of the grid; anything outside the grid isn't visible.
    picture = (-area.x * across, -area.y * down, (1 - area.x) * across, (1 - area.y) * down)
    opacity = levels.transform(size, Image.Transform.EXTENT, picture, Image.Resampling.BILINEAR)
    overlay = Image.new("RGBA", size, _COLOUR)
    overlay.putalpha(Image.fromarray(np.asarray(opacity).round().astype(np.uint8)))
    content = io.BytesIO()
    overlay.save(content, "PNG")
    return content.getvalue()


@router.post(
    "/search/batch",
    summary="Search many times",
    response_model=BatchResponse,
    responses=_PROBLEMS | {207: {"model": BatchResponse, "description": "Some have problems."}},
)
@operation("search", "search")
async def search_batch(
    collection: str, query: BatchQuery, request: Request, services: InjectedServices
) -> Response:
    """Answer up to 64 searches together, which takes less than one by one; texts alone, no image files.

    Each is answered as if it had been sent alone, in the same order: with a page, or with the problem that it
    would have had, such as an example that doesn't exist. A request in another form is refused completely.
    """
    searches, engine = [Search(query_of_one) for query_of_one in query.searches], services.engine
    count, prefix = len(searches), request.scope.get("root_path", "")
    for index, query_of_one in enumerate(searches):
        check_lengths(query_of_one.query, services.settings, f"searches.{index}.")
    count_as(request.scope, count)
    active = await services.threads.read(engine.active, collection)
    started = time.perf_counter()
    made = await unless_disconnected(request, make_batch(services, active, searches))
    encoded = time.perf_counter()
    results_or_errors = await services.threads.read(find_batch, engine, active, searches, made)
    searched = time.perf_counter()
    answered = [one for one in results_or_errors if isinstance(one, SearchResult)]
    await note_queries(
        request,
        services,
        active,
        [one.search for one in answered],
        [hit.image.id for one in answered for hit in one.page.hits],
        searches=len(answered),
    )
    encode, search = 1000 * (encoded - started), 1000 * (searched - encoded)
    for _ in searches:
        services.metrics.searched((searched - encoded) / count)
    # Every search gets an equal share of the time of all.
    share = TookMs(encode=encode / count, search=search / count, total=(encode + search) / count)
    results = []
    for one in results_or_errors:
        if isinstance(one, SearchResult):
            results.append(BatchResult.model_construct(page=one.answer(share, prefix), problem=None))
            continue
        answer = answer_recoquest_error(request, one)
        problem = Problem.model_validate_json(bytes(answer.body))
        results.append(BatchResult.model_construct(page=None, problem=problem))
    took = TookMs(encode=encode, search=search, total=milliseconds_since_arrival(request.scope))
    status = HTTPStatus.MULTI_STATUS if any(one.problem for one in results) else HTTPStatus.OK
    content = BatchResponse.model_construct(results=results, took_ms=took).model_dump_json()
    return Response(content, status_code=status, media_type="application/json")


@browse_router.get("/images", summary="All images", responses=_BROWSE_PROBLEMS)
@operation("browse", "read")
async def list_images(
    collection: str,
    parameters: Annotated[ImagesQuery, Query()],
    request: Request,
    services: InjectedServices,
) -> ImageList:
    """The images that pass a filter, or all, in a stable order, page by page.

    A page begins after the last image of the page before: none repeats and none is skipped, even if images
    are written meanwhile.
    """
    condition = read_condition(parameters.filter, services.settings)
    cursor = True if parameters.cursor is None else parameters.cursor
    search = Search.without_query(parameters, filter=condition, cursor=cursor)
    engine = services.engine

    def find() -> SearchResult:
        # Without an active generation there are no vectors, which is an error if they are requested.
        active = engine.active(collection) if "vector" in parameters.parts else None
        return search.find(engine, collection, active, [])

    result = await services.threads.read(find)
    await note_queries(request, services, None, [search], map(_IMAGE_ID, result.page.hits))
    return result.listed(request.scope.get("root_path", ""))


@browse_router.post("/count", summary="Count", responses=_BROWSE_PROBLEMS)
@operation("browse", "read")
async def count_images(collection: str, query: CountQuery, services: InjectedServices) -> Count:
    """The exact number of images, texts or groups that pass a filter and have keywords."""
    search = Search.without_query(query)
    check_lengths(search.query, services.settings)
    return Count(count=await services.threads.read(services.engine.count, collection, search.request))


@browse_router.get("/facets", summary="Counts of values", responses=_BROWSE_PROBLEMS)
@operation("browse", "read")
async def count_values(
    collection: str,
    parameters: Annotated[FieldsQuery, Query()],
    request: Request,
    services: InjectedServices,
) -> CountedFields:
    """How many images pass a filter, and the values of their fields with their counts.

    Of a field with millions of texts, the most frequent ones of the collection are counted alone.
    Logs of proxies keep addresses: where a value may name a person, `POST` the same instead.
    """
    condition = read_condition(parameters.filter, services.settings)
    search = Search.without_query(parameters, filter=condition)
    return await _count_values(collection, search, parameters, request, services)


@browse_router.post("/facets", summary="Counts of values, by a body", responses=_BROWSE_PROBLEMS)
@operation("browse", "read")
async def count_facets(
    collection: str, query: FacetQuery, request: Request, services: InjectedServices
) -> CountedFields:
    """The same as GET, and of keywords, in the body, which no log of a proxy keeps."""
    search = Search.without_query(query)
    check_lengths(search.query, services.settings)
    return await _count_values(collection, search, query, request, services)


async def _count_values(
    collection: str,
    search: Search,
    parameters: FieldsQuery | FacetQuery,
    request: Request,
    services: Services,
) -> CountedFields:
    search_request = search.request
    words = None if search_request.words is None and search_request.words_state is None else search_request
    facets = await services.threads.read(
        services.engine.facets,
        collection,
        search_request.filter,
        parameters.field,
        parameters.containing,
        words,
    )
    note(request, Noted(query=search.audited(), details={"field": parameters.field}))
    return CountedFields.model_validate(facets, from_attributes=True)
