"""Similar cases of a study, written back to the archive."""

from http import HTTPStatus

from fastapi import APIRouter, Depends, Request

from app.access.authentication import KEY_NEEDED
from app.edge.operations import operation
from app.edge.problems import RequestError, problem_responses
from app.idempotency import IdempotentRoute, idempotency_key
from app.permissions import InjectedPrincipal, may
from app.radiology.pacs.results.write_back import write_back
from app.radiology.routes.studies import StudyUid
from app.radiology.schemas.results import NewResults, WrittenResults
from app.services import InjectedServices

router = APIRouter(tags=["studies"], route_class=IdempotentRoute)


@router.post(
    "/v1/collections/{collection}/studies/{study}/results",
    summary="Write similar cases back to the archive",
    responses=problem_responses(
        HTTPStatus.CONFLICT,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.GATEWAY_TIMEOUT,
    ),
    dependencies=[may("judge"), Depends(idempotency_key)],
)
@operation("create")
async def write_results(
    collection: str,
    study: StudyUid,
    new: NewResults,
    request: Request,
    services: InjectedServices,
    principal: InjectedPrincipal,
) -> WrittenResults:
    """Store similar cases of an image in its study of the archive, in series of their own.

    `capture` is a picture of the films side by side, `report` a structured report, `selection` a FHIR
    document in the answer. `RECOQUEST_PACS_WRITE_BACK` says which are allowed; without it, nothing is
    written. Films of other patients are shown without their names, dates and ids.
    """
    if principal.kind == "anonymous":
        raise RequestError(KEY_NEEDED, "The archive is written to with a key or a session only.")
    return await write_back(request, services, collection, study, new)
