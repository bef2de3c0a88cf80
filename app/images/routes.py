"""One image of a collection: what is known of it, its thumbnail, a picture of it, its file."""

from http import HTTPStatus
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import FileResponse, Response
from pydantic import Field
from starlette.types import Receive, Scope, Send

from app.access.permissions import GuardedRoute, may
from app.edge.http.disconnect import unless_disconnected
from app.edge.http.etags import etag_of
from app.edge.http.problems import problem_responses
from app.edge.operations import operation
from app.edge.schemas import Answer
from app.edge.server.admission import BusyError
from app.edge.server.places import Budget
from app.images.renditions import (
    MAX_SIZE,
    chosen_rendition,
    find_levels,
    make,
    parse_window,
    rendition_etag,
)
from app.search.schemas import ImageInfo, image_info_from
from app.services import InjectedServices
from index.engine import SearchEngine
from index.errors import StoreError
from index.files.renditions import LARGEST_SIDES, THUMBNAIL_MEDIA_TYPE
from index.home import Home
from index.search.results import StoredImage
from training.imaging.depth import Levels
from training.imaging.images import PIXELS_VERSION
from training.imaging.window import Window

router = APIRouter(
    prefix="/v1/collections/{collection}/images/{image_id}",
    tags=["images"],
    dependencies=[may("reader")],
    route_class=GuardedRoute,
)

_PROBLEMS = problem_responses(HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.INTERNAL_SERVER_ERROR)
_FILE: dict[str, Any] = {"content": {"image/*": {"schema": {"type": "string", "format": "binary"}}}}
_PICTURE: dict[str, Any] = {
    "description": "The picture.",
    "content": {name: {"schema": {"type": "string", "format": "binary"}} for name in LARGEST_SIDES},
    "headers": {"ETag": {"schema": {"type": "string"}}, "Vary": {"schema": {"type": "string"}}},
}
_ETAG = {"ETag": {"description": "Of the image as it is now.", "schema": {"type": "string"}}}
_NOT_MODIFIED: dict[str, Any] = {"description": "The caller's copy is the current one."}
_FILE_ANSWERS: dict[int | str, dict[str, Any]] = {**_PROBLEMS, 200: _FILE, 304: _NOT_MODIFIED}

# Images may be of patients: no shared cache keeps them, and a browser asks whether its copy is current.
_CACHE_CONTROL = "private, no-cache"
_NO_SCRIPTS = "default-src 'none'; sandbox"

IfNoneMatch = Annotated[
    str | None, Header(alias="If-None-Match", description="ETag of the copy that the caller has.")
]
Size = Annotated[
    int | None,
    Query(ge=1, le=MAX_SIZE, description="Longest side in pixels; without it the whole.", examples=[1024]),
]
WindowText = Annotated[
    str,
    Query(
        description="Centre and width in stored values: from black to white. `auto`: as it is searched.",
        examples=["auto", "2048,4096"],
    ),
]
_Variant = Literal["content", "thumbnail"]


class GreyWindow(Answer):
    """A window, in stored values."""

    centre: float = Field(description="Value that becomes middle grey.")
    width: float = Field(description="Distance of the values that become black and white.")


class GreyLevels(Answer):
    """The stored values of an image and windows to see it through; null where a sample has up to 8 bits."""

    deep: bool = Field(description="Whether a sample has more than 8 bits.")
    smallest: float | None = Field(default=None, description="Smallest value found in the image.")
    largest: float | None = None
    automatic: GreyWindow | None = Field(
        default=None,
        description="The window of its renditions, thumbnail and vector; null for an image of one value.",
    )
    stated: GreyWindow | None = Field(
        default=None, description="The window that the file states; null without one."
    )


@router.get("/thumbnail", summary="Small picture", response_class=FileResponse, responses=_FILE_ANSWERS)
@operation("view")
async def get_thumbnail(
    collection: str, image_id: str, services: InjectedServices, if_none_match: IfNoneMatch = None
) -> Response:
    """A WebP that fits a grid of hits."""
    made = await services.threads.read(_has_thumbnail, services.engine, collection, image_id)
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
@operation("view")
async def get_rendition(
    collection: str,
    image_id: str,
    request: Request,
    services: InjectedServices,
    size: Size = None,
    window: WindowText = "auto",
    if_none_match: IfNoneMatch = None,
) -> Response:
    """The image as it is searched: 8 bits a channel, upright, in sRGB, whatever its file is.

    JPEG, WebP or lossless PNG, as `Accept` prefers; JPEG where it likes several alike. Films of more than 8
    bits are shown through the window that their thumbnails and vectors have, or through another one. Nothing
    is enlarged. A picture is made anew for each request, and not for one whose copy is current.
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
        return _Picture(content, rendition.media_type, headers, request.app.state.stages.pictures)


@router.get(
    "/levels",
    summary="Grey levels",
    responses={
        **_PROBLEMS,
        **problem_responses(HTTPStatus.GATEWAY_TIMEOUT),
    },
)
@operation("view")
async def get_levels(
    collection: str, image_id: str, request: Request, services: InjectedServices
) -> GreyLevels:
    """The stored values of an image and its windows, to ask for renditions with another one."""
    image = await services.threads.read(services.engine.image, collection, image_id)
    return _levels_from(await unless_disconnected(request, find_levels(services, image)))


@router.get("/content", summary="The file itself", response_class=FileResponse, responses=_FILE_ANSWERS)
@operation("export")
async def get_content(
    collection: str, image_id: str, services: InjectedServices, if_none_match: IfNoneMatch = None
) -> Response:
    """The file as it is stored, byte for byte, without position, names and comments if these are not kept."""
    return await services.threads.read(
        _current, services.engine, collection, image_id, "content", if_none_match
    )


@router.get(
    "",
    summary="What is known of an image",
    response_model=ImageInfo,
    responses={**_PROBLEMS, 200: {"headers": _ETAG}, 304: _NOT_MODIFIED},
)
@operation("view")
async def get_image(
    collection: str,
    image_id: str,
    request: Request,
    response: Response,
    services: InjectedServices,
    if_none_match: IfNoneMatch = None,
) -> ImageInfo | Response:
    """Texts, report, labels, metadata and size of one image; its ETag is the If-Match of a change of it."""
    prefix = request.scope.get("root_path", "")

    def read() -> tuple[str, ImageInfo | None]:
        image = services.engine.image(collection, image_id)
        etag = etag_of(image.revision)
        known = _matches(if_none_match, etag)
        return etag, None if known else image_info_from(image, collection, prefix=prefix)

    etag, info = await services.threads.read(read)
    if info is None:
        return _not_modified(etag)
    response.headers["ETag"] = etag
    return info


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
        headers["Content-Disposition"] = _disposition(image)
    return FileResponse(path, media_type=media_type, headers=headers, stat_result=path.stat())


def _disposition(image: StoredImage) -> str:
    return f"inline; filename*=UTF-8''{quote(image.id, safe='')}"


class _Picture(Response):
    """Counts against a budget until the caller has taken it, so that slow callers do not fill the memory."""

    def __init__(self, content: bytes, media_type: str, headers: dict[str, str], budget: Budget) -> None:
        super().__init__(content, media_type=media_type, headers=headers)
        self._budget = budget

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it.

        Raises:
            BusyError: Others have not taken theirs.
        """
        size = len(self.body)
        if not self._budget.reserve(size):
            raise BusyError
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._budget.free(size)


def _levels_from(levels: Levels | None) -> GreyLevels:
    """Describe the levels of an image; None is one of up to 8 bits."""
    if levels is None:
        return GreyLevels(deep=False)
    automatic = None
    if levels.high > levels.low:
        automatic = Window((levels.low + levels.high) / 2, levels.high - levels.low)
    return GreyLevels(
        deep=True,
        smallest=levels.smallest,
        largest=levels.largest,
        automatic=_window_from(automatic),
        stated=_window_from(levels.stated),
    )


def _window_from(window: Window | None) -> GreyWindow | None:
    return None if window is None else GreyWindow(centre=window.centre, width=window.width)
