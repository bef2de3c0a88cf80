"""A study of the archive indexed on demand, for a viewer that has it open."""

from http import HTTPStatus

from fastapi import APIRouter, Depends, Request, Response
from sqlalchemy.orm import Session

from app.access.permissions import may
from app.api.radiology.studies import StudyUid
from app.http.field_errors import FieldError
from app.http.problem_kinds import INVALID
from app.http.problems import RequestError, problem_responses
from app.jobs.queue import SYNC, study_sync, synced_collection
from app.operations.services import InjectedServices
from app.operations.writes.idempotency import IdempotentRoute, idempotency_key
from app.operations.writes.queue_job import location_of, queue_job
from app.schemas.jobs import JobEntry
from index.catalogue.collections import require_collection
from training.data.reports.study_report import is_uid

router = APIRouter(prefix="/v1/collections", tags=["studies"], route_class=IdempotentRoute)


@router.post(
    "/{collection}/studies/{study}/index",
    summary="Index a study of the archive",
    status_code=HTTPStatus.ACCEPTED,
    responses=problem_responses(
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.NOT_FOUND,
        HTTPStatus.CONFLICT,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.SERVICE_UNAVAILABLE,
    )
    | {202: {"headers": {"Location": {"description": "The job.", "schema": {"type": "string"}}}}},
    dependencies=[may("curator"), Depends(idempotency_key)],
)
async def index_study(
    collection: str, study: StudyUid, request: Request, services: InjectedServices, response: Response
) -> JobEntry:
    """Queue a job that takes over this study alone, by the sync that RECOQUEST_PACS_SYNC describes.

    Whoever may index may follow and cancel the job. Nothing happens where no `recoquest worker` runs.
    """
    given = services.settings.pacs_sync
    if not is_uid(study):
        raise _invalid("study", "It is no Study Instance UID.")
    if given is None or synced_collection(given) != collection:
        raise _invalid("collection", "The setting RECOQUEST_PACS_SYNC describes no sync of this collection.")

    def check(session: Session) -> None:
        require_collection(session, collection)

    job = await queue_job(request, services, SYNC, study_sync(given, study), check=check)
    response.headers["Location"] = location_of(job)
    return JobEntry.of(job)


def _invalid(field: str, message: str) -> RequestError:
    return RequestError(INVALID, message, errors=[FieldError(field=field, message=message)])
