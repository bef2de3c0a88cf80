"""Search a collection: by text, images, and examples of what is wanted and what is not."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse

from app.http.problems import problem_responses
from app.operations.read_search import SentSearch, read_search
from app.operations.search import answer_search
from app.operations.services import InjectedServices
from app.schemas.search.old_names import deprecation_headers, in_old_names
from app.schemas.search_page import SearchResponse
from app.schemas.search_query import SEARCH_BODY

router = APIRouter(prefix="/v1/collections/{collection}", tags=["search"])

_PROBLEMS = problem_responses(
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.CONFLICT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.INTERNAL_SERVER_ERROR,
    HTTPStatus.SERVICE_UNAVAILABLE,
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
async def search(
    collection: str,
    sent: Annotated[SentSearch, Depends(sent_search)],
    request: Request,
    services: InjectedServices,
) -> SearchResponse | Response:
    """Find images, or their texts, by a text, by image files and by examples, alone or together.

    Send JSON; to send image files, a form with the same JSON in the field `query`. A file that is sent is not
    kept. An image of the collection that is an example is left out of the hits. A request that uses the old
    name of a field is answered in old names, with `Deprecation` (RFC 9745).
    """
    page = await answer_search(request, services, collection, sent)
    if sent.query.in_old_names:
        headers = deprecation_headers(request.scope.get("root_path", ""))
        return JSONResponse(in_old_names(page), headers=headers)
    return page
