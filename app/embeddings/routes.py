"""Embed texts and images, in the form of OpenAI's interface."""

from http import HTTPStatus
from typing import Final

from fastapi import APIRouter, Request

from app.edge.admission import count_as
from app.edge.operations import operation
from app.edge.problems import problem_responses
from app.embeddings.embeddings import answer_embeddings, read_embeddings
from app.embeddings.schemas import EMBEDDINGS_BODY, Embeddings
from app.permissions import GuardedRoute, InjectedPrincipal, may
from app.services import InjectedServices

PATH: Final = "/v1/embeddings"
router = APIRouter(tags=["models"], route_class=GuardedRoute)


@router.post(
    PATH,
    summary="Embed",
    responses=problem_responses(
        HTTPStatus.NOT_FOUND,
        HTTPStatus.CONFLICT,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.GATEWAY_TIMEOUT,
    ),
    dependencies=[may("reader", somewhere=True)],
    openapi_extra=EMBEDDINGS_BODY,
)
@operation("search", work="search")
async def create_embeddings(
    request: Request, services: InjectedServices, principal: InjectedPrincipal
) -> Embeddings:
    """Vectors of texts and images, as the packages of OpenAI ask for them.

    They are of the space in which the collection is searched, and go into a search as `like` with a `vector`.
    The caller is a reader of the collection, or of one that is searched with the model.
    """
    sent = await read_embeddings(request, services)
    count_as(request.scope, len(sent.sources))
    return await answer_embeddings(request, services, principal, sent)
