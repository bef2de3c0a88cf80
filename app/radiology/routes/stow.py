"""DICOM files sent by archives and modalities: STOW-RS of DICOMweb (PS3.18, section 10.5)."""

import json
from http import HTTPStatus
from typing import Annotated, Any, Final

import structlog
from fastapi import APIRouter, Depends, Path, Request, Response

from app.audit.requests import Noted, note
from app.concurrency import unless_disconnected
from app.edge.addresses import service_url
from app.edge.operations import operation
from app.edge.problems import problem_responses
from app.permissions import GuardedRoute, may
from app.radiology.pacs.dicomweb.multipart import Part
from app.radiology.pacs.stow import JSON, MEDIA_TYPE, read_parts, store_instances
from app.services import InjectedServices, Services
from index.audit.event import Detail

router = APIRouter(prefix="/v1/collections", tags=["writes"], route_class=GuardedRoute)

_SEQUENCE: Final = {
    "type": "object",
    "properties": {"vr": {"const": "SQ"}, "Value": {"type": "array", "items": {"type": "object"}}},
}
_ANSWER: Final[dict[str, Any]] = {
    "content": {
        JSON: {
            "schema": {
                "type": "object",
                "description": "DICOM JSON: ReferencedSOPSequence (00081199) names the instances that are "
                "there, FailedSOPSequence (00081198) the others with their FailureReason (00081197).",
                "properties": {"00081198": _SEQUENCE, "00081199": _SEQUENCE},
            }
        }
    }
}
_BODY: Final = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/related": {
                "schema": {
                    "type": "array",
                    "items": {"type": "string", "format": "binary", "description": "A DICOM file."},
                },
                "encoding": {"": {"contentType": MEDIA_TYPE}},
            },
            MEDIA_TYPE: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}

_RESPONSES: Final[dict[int | str, dict[str, Any]]] = {
    **problem_responses(
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.GATEWAY_TIMEOUT,
        HTTPStatus.INSUFFICIENT_STORAGE,
    ),
    200: {**_ANSWER, "description": "All instances are there."},
    202: {**_ANSWER, "description": "Some are there; FailedSOPSequence names the others."},
    409: {**_ANSWER, "description": "None is there, or the collection cannot be written to."},
}

_log = structlog.stdlib.get_logger(__name__)


async def sent_parts(request: Request, services: InjectedServices) -> list[Part]:
    """Read the body within the service's limits."""
    return await read_parts(request, services)


@router.post(
    "/{collection}/dicomweb/studies",
    summary="Put DICOM instances in (STOW-RS)",
    responses=_RESPONSES,
    response_class=Response,
    openapi_extra=_BODY,
    dependencies=[may("curator")],
)
@operation("create")
async def store_instances_of_studies(
    collection: str,
    sent: Annotated[list[Part], Depends(sent_parts)],
    request: Request,
    services: InjectedServices,
) -> Response:
    """Put in the films of DICOM files, as an archive sends them; sent again, they are unchanged.

    Files are de-identified before anything of them is kept, and those that may show a name are refused, as
    `recoquest import dicom` does. The id of an image is its SOP Instance UID.
    """
    return await _store(request, services, collection, sent, None)


@router.post(
    "/{collection}/dicomweb/studies/{study}",
    summary="Put DICOM instances of a study in (STOW-RS)",
    responses=_RESPONSES,
    response_class=Response,
    openapi_extra=_BODY,
    dependencies=[may("curator")],
)
@operation("create")
async def store_instances_of_study(
    collection: str,
    study: Annotated[str, Path(description="Study Instance UID; instances of another study fail.")],
    sent: Annotated[list[Part], Depends(sent_parts)],
    request: Request,
    services: InjectedServices,
) -> Response:
    """Put in the films of DICOM files of one study; those of another study fail with the reason A900."""
    return await _store(request, services, collection, sent, study)


async def _store(
    request: Request, services: Services, collection: str, sent: list[Part], study: str | None
) -> Response:
    stored = await unless_disconnected(request, store_instances(services, collection, sent, study))
    counts: dict[str, Detail] = {**stored.counts}
    active = stored.active
    note(
        request,
        Noted(
            objects=list(stored.images),
            model=None if active is None else active.digest,
            generation=None if active is None else active.generation,
            details=counts,
        ),
    )
    if stored.reasons:
        _log.info("instances were not taken", reasons=sorted(stored.reasons), **stored.counts)
    address = f"{service_url(request, services.settings)}/v1/collections/{collection}/images"
    return Response(json.dumps(stored.body(address)), stored.status, media_type=JSON)
