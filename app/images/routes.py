"""Images of a collection: details, pictures, files, links; writes, deletion and erasure."""

import json
from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.responses import FileResponse
from starlette.types import Receive, Scope, Send

from app.access.sessions import PARAMETER, linked_address
from app.audit.requests import Noted, actor_of, note
from app.collections.routes import WRITE_PROBLEMS
from app.collections.schemas import Removed
from app.concurrency import unless_disconnected
from app.edge.admission import Budget, BusyError
from app.edge.headers import write_condition
from app.edge.operations import etag_of, operation
from app.edge.problems import invalid, problem_responses
from app.edge.schemas import image_path
from app.idempotency import IdempotentRoute, idempotency_key, ids_left_out
from app.images.deletion import Deletion, delete_batches, erase, refusal
from app.images.renditions import chosen_rendition, find_levels, make, parse_window, rendition_etag
from app.images.schemas import (
    MAX_SIZE,
    UPLOAD_BODY,
    UPLOADS_BODY,
    DeletedImages,
    ErasedImages,
    GreyLevels,
    HoldingBackup,
    ImageChanges,
    ImageInfo,
    ImagesToDelete,
    ImagesToErase,
    LinkedRendition,
    LinkWanted,
    PictureLink,
    WriteAnswer,
    WriteCounts,
    WritesAnswer,
    WrittenBy,
)
from app.images.uploads import SentImage, WrittenImages, change_one, read_upload, read_uploads, write_sent
from app.permissions import GuardedRoute, may
from app.search.read_search import check_length
from app.search.routes import ENCODING_PROBLEMS
from app.services import InjectedServices
from index.catalogue.collections import require_collection
from index.catalogue.images import StoredImage
from index.engine import SearchEngine
from index.errors import StoreError, UnknownImageError
from index.files.renditions import LARGEST_SIDES, THUMBNAIL_MEDIA_TYPE
from index.writes.live import Condition, remove_image
from training.common.errors import RecoquestError
from training.imaging.images import PIXELS_VERSION
from training.imaging.window import Window

_PROBLEMS = problem_responses(HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.INTERNAL_SERVER_ERROR)
router = APIRouter(
    prefix="/v1/collections/{collection}/images/{image_id}",
    tags=["images"],
    dependencies=[may("reader")],
    responses=_PROBLEMS,
    route_class=GuardedRoute,
)
writes = APIRouter(
    prefix="/v1/collections",
    tags=["writes"],
    responses=WRITE_PROBLEMS,
    route_class=IdempotentRoute,
)

_CONDITION_PROBLEMS = problem_responses(HTTPStatus.PRECONDITION_FAILED)
_FILE: dict[str, Any] = {"content": {"image/*": {"schema": {"type": "string", "format": "binary"}}}}
_PICTURE: dict[str, Any] = {
    "description": "The picture.",
    "content": {name: {"schema": {"type": "string", "format": "binary"}} for name in LARGEST_SIDES},
    "headers": {"ETag": {"schema": {"type": "string"}}, "Vary": {"schema": {"type": "string"}}},
}
_ETAG = {"ETag": {"description": "Of the image as it is now.", "schema": {"type": "string"}}}
_NOT_MODIFIED: dict[str, Any] = {"description": "The caller's copy is the current one."}
_FILE_ANSWERS: dict[int | str, dict[str, Any]] = {200: _FILE, 304: _NOT_MODIFIED}
# Images may be of patients: no shared cache may keep them, and browsers revalidate their copies.
_CACHE_CONTROL = "private, no-cache"
_NO_SCRIPTS = "default-src 'none'; sandbox"
IfNoneMatch = Annotated[
    str | None, Header(alias="If-None-Match", description="ETag of the copy that the caller has.")
]
Size = Annotated[
    int | None,
    Query(ge=1, le=MAX_SIZE, description="Longest side in pixels; default: full size.", examples=[1024]),
]
WindowText = Annotated[
    str,
    Query(
        description="Centre and width in stored values: from black to white. `auto`: as it is searched.",
        examples=["auto", "2048,4096"],
    ),
]
IfCondition = Annotated[Condition, Depends(write_condition)]
_Variant = Literal["content", "thumbnail"]


@router.get("/thumbnail", summary="Small picture", response_class=FileResponse, responses=_FILE_ANSWERS)
@operation("view", "read", picture="thumbnail")
async def get_thumbnail(
    collection: str, image_id: str, services: InjectedServices, if_none_match: IfNoneMatch = None
) -> Response:
    """A WebP that fits a grid of hits."""
    engine, store = services.engine, services.engine.home.store
    made = await services.threads.read(lambda: store.has_thumbnail(engine.image(collection, image_id).sha256))
    # Making a thumbnail waits for a decoding process, and would keep searches from their threads.
    call = services.threads.read if made else services.threads.thumbnail
    return await call(_current, services.engine, collection, image_id, "thumbnail", if_none_match)


@router.get(
    "/rendition",
    summary="Picture for a browser",
    response_class=Response,
    responses={
        **_FILE_ANSWERS,
        200: _PICTURE,
        **problem_responses(HTTPStatus.NOT_ACCEPTABLE, HTTPStatus.GATEWAY_TIMEOUT),
    },
)
@operation("view", "read", picture="rendition")
async def get_rendition(
    collection: str,
    image_id: str,
    request: Request,
    services: InjectedServices,
    size: Size = None,
    window: WindowText = "auto",
    if_none_match: IfNoneMatch = None,
) -> Response:
    """The image as it is searched: 8 bits a channel, upright, in sRGB, for files of all formats.

    JPEG, WebP or lossless PNG, as `Accept` prefers; JPEG where it likes several alike. Films of more than 8
    bits are shown through the window that their thumbnails and vectors have, or through another one. Nothing
    is enlarged. A picture is made again for each request, and not for one whose copy is current.
    """
    levels, lost = parse_window(window), ""
    accept = ",".join(request.headers.getlist("accept"))
    while True:
        image = await services.threads.read(services.engine.image, collection, image_id)
        rendition = chosen_rendition(image, accept, size, levels)
        headers = {
            "ETag": rendition_etag(image, rendition),
            "Cache-Control": _CACHE_CONTROL,
            "Vary": "Accept",
        }
        if _matches(if_none_match, headers["ETag"]):
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
        try:
            content = await unless_disconnected(request, make(services, image, rendition))
        except StoreError:
            # The image may have been replaced or removed since.
            if image.sha256 == lost:
                raise
            lost = image.sha256
            continue
        headers |= {"Content-Security-Policy": _NO_SCRIPTS, "Content-Disposition": _disposition(image)}
        return _Picture(content, rendition.media_type, headers, services.stages.pictures)


@router.get("/levels", summary="Grey levels", responses=problem_responses(HTTPStatus.GATEWAY_TIMEOUT))
@operation("view", "read")
async def get_levels(
    collection: str, image_id: str, request: Request, services: InjectedServices
) -> GreyLevels:
    """The stored values of an image and its windows, to ask for renditions with another one."""
    image = await services.threads.read(services.engine.image, collection, image_id)
    levels = await unless_disconnected(request, find_levels(services, image))
    if levels is None:
        return GreyLevels(deep=False)
    automatic = None
    if levels.high > levels.low:
        automatic = Window((levels.low + levels.high) / 2, levels.high - levels.low)
    levels_found = {"deep": True, "automatic": automatic, **asdict(levels)}
    return GreyLevels.model_validate(levels_found, from_attributes=True)


@router.get("/content", summary="The file itself", response_class=FileResponse, responses=_FILE_ANSWERS)
@operation("export", "read", picture="content")
async def get_content(
    collection: str, image_id: str, services: InjectedServices, if_none_match: IfNoneMatch = None
) -> Response:
    """The file as it is stored, byte for byte, without position, names and comments if these are not kept."""
    return await services.threads.read(
        _current, services.engine, collection, image_id, "content", if_none_match
    )


@router.get(
    "",
    summary="Get an image's details",
    response_model=ImageInfo,
    responses={200: {"headers": _ETAG}, 304: _NOT_MODIFIED},
)
@operation("view", "read")
async def get_image(
    collection: str,
    image_id: str,
    request: Request,
    response: Response,
    services: InjectedServices,
    if_none_match: IfNoneMatch = None,
) -> ImageInfo | Response:
    """Texts, report, labels, metadata and size of one image; its ETag is the If-Match of a change of it."""
    path = image_path(collection, image_id, prefix=request.scope.get("root_path", ""))

    def read() -> tuple[str, ImageInfo | None]:
        image = services.engine.image(collection, image_id)
        etag = etag_of(image.revision)
        unchanged = _matches(if_none_match, etag)
        return etag, None if unchanged else ImageInfo.from_image(image, path)

    etag, info = await services.threads.read(read)
    if info is None:
        return _not_modified(etag)
    response.headers["ETag"] = etag
    return info


@router.post("/link", summary="Link to a picture")
@operation("export", "write")
async def link_image(
    collection: str, image_id: str, link: LinkWanted, request: Request, services: InjectedServices
) -> PictureLink:
    """An address that shows this one picture without a key, in these parameters, until it ends.

    It ends before where the caller loses the right to see the picture. The audit trail names the caller at
    each use.
    """
    picture, parameters = _picture(link)
    await services.threads.read(services.engine.image, collection, image_id)
    authenticator = services.authenticator
    maker = await authenticator.maker_of(request, collection, link.expires_in)
    key = await services.read(lambda session: require_collection(session, collection).id)
    sealed = authenticator.signer.seal_link(maker, linked_address(key, image_id, picture, parameters.items()))
    expires = datetime.fromtimestamp(maker.expires, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    note(request, Noted(details={"picture": picture, "expires": expires, **parameters}))
    path = image_path(collection, image_id, prefix=request.scope.get("root_path", ""))
    return PictureLink(
        url=f"{path}/{picture}?{urlencode({**parameters, PARAMETER: sealed})}", expires=expires
    )


@writes.post(
    "/{collection}/images",
    summary="Put images in",
    responses={
        **ENCODING_PROBLEMS,
        200: {"description": "All images are there."},
        207: {"model": WritesAnswer, "description": "Some were refused; the others are there."},
    },
    openapi_extra=UPLOADS_BODY,
    dependencies=[may("curator"), Depends(idempotency_key)],
)
@operation("create", "write")
async def upload_images(
    collection: str,
    sent: Annotated[list[SentImage], Depends(read_uploads)],
    request: Request,
    response: Response,
    services: InjectedServices,
) -> WritesAnswer:
    """Put in one or many images, replacing those of the same id; the answer has a status for each.

    An image that cannot be used is refused and the others are written, all in one step: the answer is 207
    then. When the answer comes, they are on the disk and the next search finds them. Sent again, they are
    unchanged.
    """
    written = await unless_disconnected(request, write_sent(services, collection, sent))
    _note(request, written)
    counts = WriteCounts.from_images(written.images)
    if counts.refused:
        response.status_code = HTTPStatus.MULTI_STATUS
    return WritesAnswer(
        written=counts.received - counts.refused,
        refused=counts.refused,
        results=written.images,
        counts=counts,
        written_to=WrittenBy.model_validate(written.active, from_attributes=True),
    )


@writes.put(
    "/{collection}/images/{image_id}",
    summary="Put an image in",
    responses={
        **ENCODING_PROBLEMS,
        **_CONDITION_PROBLEMS,
        200: {"description": "The image was there.", "headers": _ETAG},
        201: {"model": WriteAnswer, "description": "The image is new.", "headers": _ETAG},
    },
    openapi_extra=UPLOAD_BODY,
    dependencies=[may("curator")],
)
@operation("create", "write")
async def put_image(
    collection: str,
    sent: Annotated[SentImage, Depends(read_upload)],
    request: Request,
    response: Response,
    services: InjectedServices,
    condition: IfCondition,
) -> WriteAnswer:
    """Add an image under this id, or replace the existing one with its whole record.

    `If-None-Match: *` only adds a new image, and `If-Match` only replaces the version that the caller knows.
    """
    written = await unless_disconnected(
        request, write_sent(services, collection, [sent], condition, refuse=False)
    )
    _note(request, written)
    if written.images[0].status == "created":
        response.status_code = HTTPStatus.CREATED
    return _answer(response, written)


@writes.patch(
    "/{collection}/images/{image_id}",
    summary="Change an image's record",
    responses={**ENCODING_PROBLEMS, **_CONDITION_PROBLEMS, 200: {"headers": _ETAG}},
    dependencies=[may("curator")],
)
@operation("change", "write")
async def update_image(
    collection: str,
    image_id: str,
    changes: ImageChanges,
    request: Request,
    response: Response,
    services: InjectedServices,
    condition: IfCondition,
) -> WriteAnswer:
    """Change the record of an image; omitted fields stay.

    With `If-Match`, only the version that the caller knows is changed, so that concurrent changes aren't
    lost.
    """
    changing = change_one(services, collection, image_id, changes, condition)
    written = await unless_disconnected(request, changing)
    active, details = written.active, {"outcome": written.images[0].status}
    note(request, Noted(model=active.digest, generation=active.generation, details={**details}))
    return _answer(response, written)


@writes.delete(
    "/{collection}/images/{image_id}",
    summary="Remove an image",
    responses=_CONDITION_PROBLEMS,
    dependencies=[may("curator")],
)
@operation("delete", "write")
async def delete_image(
    collection: str, image_id: str, services: InjectedServices, condition: IfCondition
) -> Removed:
    """Remove an image with its record, and its file if no other image has the same."""
    await services.threads.write(remove_image, services.engine.home, collection, image_id, condition)
    return Removed(collection=collection, id=image_id)


@writes.post(
    "/{collection}/images/delete",
    summary="Remove images by filter",
    responses={
        200: {"description": "All images that passed the filter were deleted, or counted."},
        207: {"model": DeletedImages, "description": "Some were deleted; others still pass the filter."},
    },
    dependencies=[may("curator"), Depends(idempotency_key)],
)
@operation("delete", "write")
async def delete_matching_images(
    collection: str,
    deletion_request: ImagesToDelete,
    request: Request,
    response: Response,
    services: InjectedServices,
) -> DeletedImages:
    """Remove the images that pass a filter, up to 10,000 per request, with their records.

    They are removed in atomic batches: searches and other writers continue in between, and what was removed
    before an interruption stays removed. Images that are changed meanwhile stay. While `remaining` is not 0,
    send it again with a new `Idempotency-Key`.
    """
    if not deletion_request.filter:
        raise invalid("filter", "An empty filter would delete every image: to do so, delete the collection.")
    check_length("filter", json.dumps(deletion_request.filter), services.settings.max_filter_length)
    deletion = await services.threads.read(
        Deletion,
        services.settings,
        services.engine.home,
        collection,
        deletion_request.filter,
        actor_of(request),
        operation="delete_matching_images",
        request=request.state.request_id,
        expected=deletion_request.expected_count,
    )
    problem = None if deletion_request.dry_run else await delete_batches(services, deletion)
    matched = len(deletion.matching.keys)
    remaining = matched - deletion.deleted
    if problem is None and deletion.deleted:
        try:
            remaining = await services.threads.read(deletion.remaining)
        except RecoquestError as error:
            problem = refusal("What passes the filter now cannot be counted", error)
    noted = Noted(
        action="browse" if deletion_request.dry_run else None,
        objects=deletion.ids if deletion_request.dry_run else (),
        query=deletion.query,
        # Events of batches that deleted something are written with them.
        recorded=deletion.deleted > 0,
        details={**deletion.details, "dry_run": deletion_request.dry_run},
    )
    note(request, noted)
    if (remaining or problem) and not deletion_request.dry_run:
        response.status_code = HTTPStatus.MULTI_STATUS
    return DeletedImages(
        collection=collection,
        dry_run=deletion_request.dry_run,
        matched=matched,
        deleted=deletion.deleted,
        remaining=remaining,
        ids=deletion.ids,
        problem=problem,
    )


@writes.post(
    "/{collection}/erase",
    summary="Erase images",
    dependencies=[may("admin"), Depends(idempotency_key), Depends(ids_left_out)],
)
@operation("erase", "write")
async def erase_images(
    collection: str, erasure_request: ImagesToErase, request: Request, services: InjectedServices
) -> ErasedImages:
    """Remove images so that no byte of them remains on the disk, and list backups that still contain them.

    A patient or a study names all its images, and its reports, also those that came before images.

    Beside what a removal takes, the results and files of jobs, snapshots of vectors, judgements that name
    them as examples, and free pages of the database go. The audit trail keeps keyed hashes of their ids. It
    takes as long as rewriting the database and the collection's snapshots.
    """
    erasure = await services.threads.background(
        erase,
        services.settings,
        services.engine.home,
        collection,
        erasure_request.ids,
        actor_of(request),
        patient=erasure_request.patient,
        study=erasure_request.study,
        operation="erase_images",
        request=request.state.request_id,
    )
    note(request, Noted(recorded=True))
    if (
        erasure_request.ids
        and not erasure.ids
        and not erasure.erased.backups
        and set(erasure.unknown) == set(erasure_request.ids)
    ):
        raise UnknownImageError(collection, erasure_request.ids[0])
    return ErasedImages(
        collection=collection,
        erased=list(erasure.ids),
        unknown=list(erasure.unknown),
        shared_files=list(erasure.erased.shared),
        reports=erasure.erased.reports,
        judgements=erasure.erased.judgements,
        jobs=erasure.jobs,
        retrainings=erasure.retrainings,
        left_files=[str(path) for path in (*erasure.left, *erasure.unfinished)],
        backups=[
            HoldingBackup.model_validate(backup, from_attributes=True) for backup in erasure.erased.backups
        ],
        log_is_empty=erasure.log_is_empty,
    )


def _note(request: Request, written: WrittenImages) -> None:
    active, counts = written.active, Counter[str](image.status for image in written.images)
    taken = [image.id for image in written.images if image.status != "refused"]
    note(
        request,
        Noted(objects=taken, model=active.digest, generation=active.generation, details={**counts}),
    )


def _answer(response: Response, written: WrittenImages) -> WriteAnswer:
    (image,) = written.images
    assert image.etag is not None
    response.headers["ETag"] = image.etag
    written_to = WrittenBy.model_validate(written.active, from_attributes=True)
    return WriteAnswer(**image.model_dump(exclude={"problem"}), written_to=written_to)


def _current(
    engine: SearchEngine, collection: str, image_id: str, variant: _Variant, if_none_match: str | None
) -> Response:
    """Answer with the file of an image as one look at the catalogue finds it."""
    store, lost = engine.home.store, ""
    while True:
        image = engine.image(collection, image_id)
        etag = f'"{image.sha256}"' if variant == "content" else f'"{image.sha256}-{variant}-{PIXELS_VERSION}"'
        if _matches(if_none_match, etag):
            return _not_modified(etag)
        headers = {"ETag": etag, "Cache-Control": _CACHE_CONTROL, "Content-Security-Policy": _NO_SCRIPTS}
        try:
            if variant == "thumbnail":
                path, media_type = store.thumbnail(image.sha256), THUMBNAIL_MEDIA_TYPE
            else:
                path, media_type = store.path(image.sha256), image.media_type
                headers["Content-Disposition"] = _disposition(image)
            return FileResponse(path, media_type=media_type, headers=headers, stat_result=path.stat())
        except (StoreError, FileNotFoundError):
            # The image may have been replaced or removed since.
            if image.sha256 == lost:
                raise
            lost = image.sha256


def _matches(if_none_match: str | None, etag: str) -> bool:
    """Whether the caller has this version (RFC 9110, section 13.1.2: weak comparison)."""
    if if_none_match is None:
        return False
    tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    return etag in tags or "*" in tags


def _not_modified(etag: str) -> Response:
    return Response(
        status_code=HTTPStatus.NOT_MODIFIED, headers={"ETag": etag, "Cache-Control": _CACHE_CONTROL}
    )


def _disposition(image: StoredImage) -> str:
    return f"inline; filename*=UTF-8''{quote(image.id, safe='')}"


class _Picture(Response):
    """Counts against a budget until the caller has taken it, so that slow callers do not fill the memory."""

    def __init__(self, content: bytes, media_type: str, headers: dict[str, str], budget: Budget) -> None:
        super().__init__(content, media_type=media_type, headers=headers)
        self._budget = budget

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size = len(self.body)
        if not self._budget.reserve(size):
            raise BusyError
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._budget.free(size)


def _picture(link: LinkWanted) -> tuple[str, dict[str, str]]:
    """Return the end of the path of a picture, and its parameters."""
    if not isinstance(link.rendition, LinkedRendition):
        return link.rendition, {}
    parse_window(link.rendition.window)
    size = {} if link.rendition.size is None else {"size": str(link.rendition.size)}
    return "rendition", {**size, "window": link.rendition.window}
