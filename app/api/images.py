"""One image of a collection: what is known of it, its thumbnail, its file."""

from http import HTTPStatus
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Header, Request
from fastapi.responses import FileResponse, Response

from app.http.problems import problem_responses
from app.operations.services import InjectedServices
from app.schemas.search_page import ImageInfo, image_info_from
from index.engine import SearchEngine
from index.errors import StoreError
from index.files.thumbnails import THUMBNAIL_MEDIA_TYPE
from index.home import Home
from index.search.results import StoredImage
from training.data.decoding.images import PIXELS_VERSION

router = APIRouter(prefix="/v1/collections/{collection}/images/{image_id}", tags=["images"])

_PROBLEMS = problem_responses(
    HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.INTERNAL_SERVER_ERROR
)
_FILE: dict[str, Any] = {"content": {"image/*": {"schema": {"type": "string", "format": "binary"}}}}
_NOT_MODIFIED: dict[str, Any] = {"description": "The caller's copy is the current one."}
_FILE_ANSWERS: dict[int | str, dict[str, Any]] = {**_PROBLEMS, 200: _FILE, 304: _NOT_MODIFIED}

# Images may be of patients: no shared cache keeps them, and a browser asks whether its copy is current.
_CACHE_CONTROL = "private, no-cache"
_NO_SCRIPTS = "default-src 'none'; sandbox"

IfNoneMatch = Annotated[str | None, Header(description="ETag of the copy that the caller has.")]
_Variant = Literal["content", "thumbnail"]


@router.get("/thumbnail", summary="Small picture", response_class=FileResponse, responses=_FILE_ANSWERS)
async def get_thumbnail(
    collection: str, image_id: str, services: InjectedServices, if_none_match: IfNoneMatch = None
) -> Response:
    """A WebP that fits a grid of hits."""
    made = await services.threads.read(_has_thumbnail, services.engine, collection, image_id)
    # Making a thumbnail waits for a decoding process, and would keep searches from their threads.
    call = services.threads.read if made else services.threads.thumbnail
    return await call(_current, services.engine, collection, image_id, "thumbnail", if_none_match)


@router.get("/content", summary="The file itself", response_class=FileResponse, responses=_FILE_ANSWERS)
async def get_content(
    collection: str, image_id: str, services: InjectedServices, if_none_match: IfNoneMatch = None
) -> Response:
    """The image as it was indexed, byte for byte."""
    return await services.threads.read(
        _current, services.engine, collection, image_id, "content", if_none_match
    )


@router.get("", summary="What is known of an image", responses=_PROBLEMS)
async def get_image(
    collection: str, image_id: str, request: Request, services: InjectedServices
) -> ImageInfo:
    """Texts, report, labels, metadata and size of one image."""
    image = await services.threads.read(services.engine.image, collection, image_id)
    return image_info_from(image, collection, prefix=request.scope.get("root_path", ""))


def _has_thumbnail(engine: SearchEngine, collection: str, image_id: str) -> bool:
    return engine.home.store.has_thumbnail(engine.image(collection, image_id).sha256)


def _current(
    engine: SearchEngine, collection: str, image_id: str, variant: _Variant, if_none_match: str | None
) -> Response:
    """Answer with the file of an image as one look at the catalogue finds it."""
    lost = ""
    while True:
        image = engine.image(collection, image_id)
        etag = f'"{image.sha256}"' if variant == "content" else f'"{image.sha256}-{variant}-{PIXELS_VERSION}"'
        if _matches(if_none_match, etag):
            return _not_modified(etag)
        try:
            return _file(engine.home, image, variant, etag)
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


def _file(home: Home, image: StoredImage, variant: _Variant, etag: str) -> FileResponse:
    headers = {"ETag": etag, "Cache-Control": _CACHE_CONTROL, "Content-Security-Policy": _NO_SCRIPTS}
    if variant == "thumbnail":
        path, media_type = home.store.thumbnail(image.sha256), THUMBNAIL_MEDIA_TYPE
    else:
        path, media_type = home.store.path(image.sha256), image.media_type
        headers["Content-Disposition"] = f"inline; filename*=UTF-8''{quote(image.id, safe='')}"
    return FileResponse(path, media_type=media_type, headers=headers, stat_result=path.stat())
