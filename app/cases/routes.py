"""Case lists: images of a collection that people keep under a name, with notes."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from app.audit.requests import Noted, note
from app.cases.schemas import (
    CaseKept,
    CaseListEntry,
    CaseListGone,
    CaseListName,
    CaseLists,
    CaseNote,
    CasePage,
    CasesQuery,
    SavedCase,
)
from app.cases.teaching_file import ZipResponse, teaching_file
from app.edge.headers import write_condition
from app.edge.operations import etag_of, operation
from app.edge.problems import problem_responses
from app.edge.schemas import images_path
from app.permissions import GuardedRoute, InjectedPrincipal, may
from app.services import InjectedServices
from index.audit.event import Detail
from index.cases import case_lists, delete_list, put_list, read_list, remove_case, save_case
from index.feedback import User
from index.writes.live import Condition

router = APIRouter(prefix="/v1/collections/{collection}/cases", tags=["cases"], route_class=GuardedRoute)

_READ_PROBLEMS = problem_responses(HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.GATEWAY_TIMEOUT)
_WRITE_PROBLEMS = problem_responses(
    HTTPStatus.CONFLICT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.INSUFFICIENT_STORAGE,
)
_CONDITION_PROBLEMS = problem_responses(HTTPStatus.PRECONDITION_FAILED)
_ETAG = {"ETag": {"description": "The If-Match of the next change.", "schema": {"type": "string"}}}
_ZIP = {"content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}}}

ListId = Annotated[
    str,
    Path(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="The list, by its id: up to 64 letters, digits, dots, hyphens and underscores.",
        examples=["teaching"],
    ),
]
IfCondition = Annotated[Condition, Depends(write_condition)]


@router.get("", summary="Case lists", responses=_READ_PROBLEMS, dependencies=[may("reader")])
@operation(None, "read")
async def list_case_lists(collection: str, services: InjectedServices) -> CaseLists:
    """All lists of a collection, by name; anyone who may read the collection sees them."""
    lists = await services.read(case_lists, collection)
    return CaseLists(collection=collection, lists=[CaseListEntry.from_list(one) for one in lists])


@router.get("/{case_list}", summary="A case list", responses=_READ_PROBLEMS, dependencies=[may("reader")])
@operation("browse", "read")
async def get_case_list(
    collection: str,
    case_list: ListId,
    parameters: Annotated[CasesQuery, Query()],
    request: Request,
    services: InjectedServices,
) -> CasePage:
    """A list with its images and their notes, in the order in which they were added, page by page."""
    after = -1 if parameters.cursor is None else int(parameters.cursor)
    case_list_row, entries = await services.read(
        read_list, collection, case_list, after=after, limit=parameters.limit + 1
    )
    shown = entries[: parameters.limit]
    images = await services.threads.read(services.engine.images_of, [entry.key for entry in shown])
    path = images_path(collection, request.scope.get("root_path", ""))
    cases = [
        SavedCase.from_entry(entry, image, path)
        for entry, image in zip(shown, images, strict=True)
        # Others may have been removed meanwhile.
        if image is not None
    ]
    _note(request, case_list, [entry.image for entry in shown])
    return CasePage(
        **dict(CaseListEntry.from_list(case_list_row)),
        cases=cases,
        next_cursor=str(shown[-1].position) if len(entries) > parameters.limit else None,
    )


@router.put(
    "/{case_list}",
    summary="Put a case list",
    responses={
        **_WRITE_PROBLEMS,
        **_CONDITION_PROBLEMS,
        200: {"description": "The list was there; it has this name now.", "headers": _ETAG},
        201: {"model": CaseListEntry, "description": "The list is new.", "headers": _ETAG},
    },
    dependencies=[may("judge")],
)
@operation("change", "write")
async def put_case_list(
    collection: str,
    case_list: ListId,
    new: CaseListName,
    request: Request,
    response: Response,
    services: InjectedServices,
    condition: IfCondition,
) -> CaseListEntry:
    """Begin a list without images under an id of the caller's choice, or give it another name.

    With the `etag` of the list as If-Match, only the name that the caller knows is replaced, and no list is
    begun.

    A collection has 200 lists at most. Proxies keep addresses: let the name say what the list is, and not its
    id.
    """
    saved_list, existed = await services.write(put_list, collection, case_list, new.name, condition)
    _note(request, case_list, was_there=existed)
    if not existed:
        response.status_code = HTTPStatus.CREATED
    entry = CaseListEntry.from_list(saved_list)
    response.headers["ETag"] = entry.etag
    return entry


@router.delete(
    "/{case_list}", summary="Remove a case list", responses=_WRITE_PROBLEMS, dependencies=[may("judge")]
)
@operation("delete", "change")
async def delete_case_list(
    collection: str, case_list: ListId, request: Request, services: InjectedServices
) -> CaseListGone:
    """Remove a list with its notes; the images stay in the collection."""
    await services.write(delete_list, collection, case_list)
    _note(request, case_list)
    return CaseListGone(collection=collection, case_list=case_list)


@router.get(
    "/{case_list}/export",
    summary="Teaching file",
    response_class=Response,
    responses={
        **_READ_PROBLEMS,
        **problem_responses(HTTPStatus.INTERNAL_SERVER_ERROR),
        200: _ZIP,
    },
    dependencies=[may("reader")],
)
@operation("export", "read")
async def export_case_list(
    collection: str, case_list: ListId, request: Request, services: InjectedServices
) -> Response:
    """A zip file of the list, without ids, UIDs and dates: PNG pictures, `cases.csv` and `README.txt`.

    The pictures are as they are searched, of 8 bits. The table has view, side, tens of years of age, sex,
    modality, days since the patient's first film in the file, findings, the report and the note. What people
    have written into reports and notes is in it as it is: read it before you pass the file on.
    """
    exported, entries = await services.read(read_list, collection, case_list)
    _note(request, case_list, [entry.image for entry in entries])
    file = teaching_file(services, collection, exported.name, entries)
    return await ZipResponse.begin(file, services.stages.pictures)


@router.put(
    "/{case_list}/images/{image_id}",
    summary="Save a case",
    responses={**_WRITE_PROBLEMS, **_CONDITION_PROBLEMS, 200: {"headers": _ETAG}},
    dependencies=[may("judge")],
)
@operation("change", "write")
async def save_case_image(
    collection: str,
    case_list: ListId,
    image_id: str,
    new: CaseNote,
    request: Request,
    response: Response,
    services: InjectedServices,
    principal: InjectedPrincipal,
    condition: IfCondition,
) -> CaseKept:
    """Put an image into a list at its end, or change its note there; a list has 1,000 images at most.

    With the `etag` of the case as If-Match, only the note that the caller knows is replaced, and an image
    that was removed meanwhile stays removed.
    """
    user = User(principal.id, principal.name) if principal.id else None
    saved, existed = await services.write(
        save_case, collection, case_list, image_id, new.note, user, condition
    )
    _note(request, case_list, [image_id], was_there=existed)
    response.headers["ETag"] = etag_of(saved.revision)
    return CaseKept(
        case_list=case_list,
        id=saved.image,
        note=saved.note,
        saved=saved.saved,
        saved_by=None if saved.user is None else saved.user.name,
        etag=response.headers["ETag"],
    )


@router.delete(
    "/{case_list}/images/{image_id}",
    summary="Take a case out",
    responses=_WRITE_PROBLEMS,
    dependencies=[may("judge")],
)
@operation("change", "write")
async def remove_case_image(
    collection: str, case_list: ListId, image_id: str, request: Request, services: InjectedServices
) -> CaseKept:
    """Remove an image and its note from a list; the image stays in the collection."""
    existed = await services.write(remove_case, collection, case_list, image_id)
    _note(request, case_list, [image_id], was_there=existed)
    return CaseKept(case_list=case_list, id=image_id, note=None)


def _note(
    request: Request, case_list: str, images: list[str] | None = None, *, was_there: bool | None = None
) -> None:
    """Note a list by its id: names and notes may mention people."""
    details: dict[str, Detail] = {"case_list": case_list}
    if was_there is not None:
        details["was_there"] = was_there
    note(request, Noted(objects=images, details=details))
