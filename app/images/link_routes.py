"""Links to pictures for those who have no key."""

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Final, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from pydantic import Field

from app.access.sessions import PARAMETER, linked_address
from app.audit.requests import Noted, note
from app.edge import schemas as body
from app.edge.operations import operation
from app.edge.problems import problem_responses
from app.edge.schemas import Answer, image_path
from app.images.renditions import MAX_SIZE, parse_window
from app.permissions import GuardedRoute, may
from app.services import InjectedServices, Services
from index.catalogue.collections import require_collection

router = APIRouter(
    prefix="/v1/collections/{collection}/images/{image_id}",
    tags=["images"],
    dependencies=[may("reader")],
    route_class=GuardedRoute,
)

_DAY_S: Final = 86_400


class LinkedRendition(body.Request):
    """Parameters of a rendition."""

    size: Annotated[int, Field(ge=1, le=MAX_SIZE)] | None = Field(
        default=None, description="Longest side in pixels; without it the whole."
    )
    window: str = Field(default="auto", description="Centre and width in stored values, or `auto`.")


class LinkWanted(body.Request):
    """A picture, and how long others may see it."""

    rendition: LinkedRendition | Literal["thumbnail", "content"] = Field(
        default=LinkedRendition(),
        description="The image as it is searched; `thumbnail`: a small picture; `content`: the stored file.",
        examples=[{"size": 1024}],
    )
    expires_in: Annotated[int, Field(ge=1, le=_DAY_S)] = Field(
        default=3600, description="Seconds that the link holds; a day at most."
    )


class PictureLink(Answer):
    """A link to a picture."""

    url: str = Field(description="Path on this server, with parameters and signature.")
    expires: str = Field(description="Time of its end, in UTC.", examples=["2026-03-01T12:00:00Z"])


@router.post(
    "/link",
    summary="Link to a picture",
    responses=problem_responses(HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.INTERNAL_SERVER_ERROR),
)
@operation("export")
async def link_image(
    collection: str, image_id: str, wanted: LinkWanted, request: Request, services: InjectedServices
) -> PictureLink:
    """An address that shows this one picture without a key, in these parameters, until it ends.

    It ends before where the caller loses the right to see the picture. The audit trail names the caller at
    each use.
    """
    picture, parameters = _picture(wanted)
    await services.threads.read(services.engine.image, collection, image_id)
    authenticator = services.authenticator
    maker = await authenticator.maker_of(request, collection, wanted.expires_in)
    key = await services.threads.read(_key_of, services, collection)
    sealed = authenticator.signer.seal_link(maker, linked_address(key, image_id, picture, parameters.items()))
    expires = datetime.fromtimestamp(maker.expires, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    note(request, Noted(details={"picture": picture, "expires": expires, **parameters}))
    path = image_path(collection, image_id, prefix=request.scope.get("root_path", ""))
    return PictureLink(
        url=f"{path}/{picture}?{urlencode({**parameters, PARAMETER: sealed})}", expires=expires
    )


def _key_of(services: Services, collection: str) -> int:
    with services.engine.home.catalogue.read() as session:
        return require_collection(session, collection).id


def _picture(wanted: LinkWanted) -> tuple[str, dict[str, str]]:
    """Return the end of the path of a picture, and its parameters.

    Raises:
        RequestError: The window is none.
    """
    if not isinstance(wanted.rendition, LinkedRendition):
        return wanted.rendition, {}
    parse_window(wanted.rendition.window)
    size = {} if wanted.rendition.size is None else {"size": str(wanted.rendition.size)}
    return "rendition", {**size, "window": wanted.rendition.window}
