"""All routes of radiology, and the one that has a study of the archive indexed."""

from functools import partial
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Query, Request, Response

from app.edge.operations import operation
from app.edge.problems import RequestError, invalid, problem_responses
from app.idempotency import IdempotentRoute, idempotency_key
from app.jobs.schemas import JobEntry, location_of, queue_job
from app.permissions import Permission, may
from app.radiology import archive_proxy, stow, studies, viewer, write_back
from app.radiology.jobs import SYNC, study_sync, synced_collection
from app.radiology.studies import StudyUid
from app.radiology.write_back import NOTES_OFF, OFF, note_forms
from app.services import InjectedServices
from index.catalogue.collections import require_collection
from training.clinical.reports.study_report import is_uid

router = APIRouter(prefix="/v1/collections", tags=["studies"], route_class=IdempotentRoute)
ROUTERS: Final[tuple[APIRouter, ...]] = (
    studies.router,
    write_back.router,
    router,
    archive_proxy.router,
    stow.router,
    viewer.router,
)


@router.post(
    "/{collection}/studies/{study}/index",
    summary="Index a study of the archive",
    status_code=HTTPStatus.ACCEPTED,
    responses=problem_responses(HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY)
    | {202: {"headers": {"Location": {"description": "The job.", "schema": {"type": "string"}}}}},
    dependencies=[may("curator"), Depends(idempotency_key)],
)
@operation("create", "write")
async def index_study(
    collection: str,
    study: StudyUid,
    request: Request,
    services: InjectedServices,
    response: Response,
    note: Annotated[
        bool,
        Query(
            description="Then write the most similar cases of other patients into the study of the archive, "
            "in the forms that RECOQUEST_PACS_WRITE_BACK allows; this also needs the role judge."
        ),
    ] = False,
) -> JobEntry:
    """Queue a job that takes over this study alone, by the sync that RECOQUEST_PACS_SYNC describes.

    Anyone who may index may follow and cancel the job. Nothing happens if no `recoquest worker` runs.
    """
    if note:
        await Permission("judge").check(request)
    sync_settings = services.settings.pacs_sync
    if not is_uid(study):
        raise invalid("study", "It isn't a Study Instance UID.")
    if sync_settings is None or synced_collection(sync_settings) != collection:
        raise invalid("collection", "The setting RECOQUEST_PACS_SYNC describes no sync of this collection.")
    if note and not note_forms(services.settings):
        raise RequestError(OFF, NOTES_OFF)
    check = partial(require_collection, name=collection)
    job = await queue_job(request, services, SYNC, study_sync(sync_settings, study, note=note), check=check)
    response.headers["Location"] = location_of(request, job)
    return JobEntry.from_job(job)
