"""Links to single pictures: addresses with a signature, which need no credential until they end."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qsl, urlencode

from starlette.requests import HTTPConnection
from starlette.responses import Response

from app.access.sessions import SESSION, Session, SessionSigner
from app.edge.principal import Principal
from app.edge.problems import Kind, RequestError
from app.edge.schemas import image_path

PARAMETER: Final = "link"
# By the name of the route: an image may be called as a picture is.
_PICTURES: Final = {"get_thumbnail": "thumbnail", "get_rendition": "rendition", "get_content": "content"}
# Of the maker's name, which the audit trail shows.
_MAX_NAME: Final = 200
_WRONG: Final = Kind("wrong-link", "The link is not valid", HTTPStatus.FORBIDDEN)
_ENDED: Final = Kind("link-ended", "The link has ended", HTTPStatus.FORBIDDEN)


@dataclass(frozen=True, slots=True)
class LinkSigner:
    """Signs and reads links, by the secret of sessions."""

    sessions: SessionSigner
    clock: Callable[[], float] = time.time

    def seal(self, maker: Session, address: str) -> str:
        """Return the parameter `link` for an address of `linked_address`; it ends with the session."""
        return self.sessions.seal_content(
            _purpose(address), SESSION, replace(maker, name=maker.name[:_MAX_NAME])
        )

    def open(self, sealed: str, address: str) -> Session:
        """Return the maker of a link.

        Raises:
            RequestError: The link is of another address or not signed here, or has ended (403).
        """
        maker = self.sessions.open_content(_purpose(address), SESSION, sealed)
        if maker is None:
            raise wrong_link()
        if self.clock() >= maker.expires:
            raise ended_link()
        return maker


def wrong_link() -> RequestError:
    """The error of a link that was not signed here, or for another address."""
    return RequestError(
        _WRONG, "The link is of another picture or was changed: copy it whole, or ask for another."
    )


def ended_link() -> RequestError:
    """The error of a link whose time is over, or whose maker may not see the picture any more."""
    return RequestError(
        _ENDED, "The link has ended, or whoever made it may not see the picture any more: ask for another."
    )


def _purpose(address: str) -> str:
    """The purpose of a signature, which no cookie has."""
    return f"link\n{address}"


def linked_address(
    collection_id: int, image_id: str, picture: str, parameters: Iterable[tuple[str, str]]
) -> str:
    """Return what a link signs: method, path without a proxy's prefix, and all other parameters.

    The key of the collection stands in place of its name, which another collection may get.
    """
    return f"GET {image_path(str(collection_id), image_id)}/{picture}?{urlencode(sorted(parameters))}"


def link_of(request: HTTPConnection) -> tuple[str, Callable[[int], str]] | None:
    """Return the link that a request for a picture brings, and the address that it is to open.

    The address is a function of the key of the collection that the path names.
    """
    picture = _PICTURES.get(getattr(request.scope.get("endpoint"), "__name__", ""))
    if picture is None:
        return None
    image = request.path_params["image_id"]
    # As they were sent, so that none comes twice unseen.
    query = parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
    links = [value for name, value in query if name == PARAMETER]
    if not links:
        return None
    others = [(name, value) for name, value in query if name != PARAMETER]
    # Several are none that was signed.
    return ",".join(links), partial(linked_address, image_id=image, picture=picture, parameters=others)


def keep_as_long(response: Response, principal: Principal, clock: Callable[[], float] = time.time) -> None:
    """Let a browser keep a picture of a link as long as the link holds, and pages of other sites show it."""
    rest_s = 0 if principal.expires is None else max(0, int(principal.expires - clock()))
    response.headers["Cache-Control"] = f"private, max-age={rest_s}"
    response.headers["Cross-Origin-Resource-Policy"] = "cross-origin"
