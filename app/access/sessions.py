"""Sessions of browsers, and links to single pictures: signed, so that no server keeps them.

Sessions are cookies; a link is an address that needs no credential until it ends.
"""

import base64
import hmac
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Final, Literal, TypeVar
from urllib.parse import parse_qsl, urlencode

from pydantic import TypeAdapter
from starlette.requests import HTTPConnection
from starlette.responses import Response

from app.edge.operations import OPERATION, is_over_tls
from app.edge.principal import Principal
from app.edge.problems import Kind, RequestError
from app.edge.schemas import image_path
from index.keys.api_keys import Role
from index.keys.home_secret import home_secret

COOKIE: Final = "recoquest_session"
CSRF_HEADER: Final = "X-CSRF-Token"
FILE: Final = "session.key"
LIFETIME_S: Final = 12 * 3600
# Browsers keep cookies of up to 4,096 bytes, with name and attributes.
_MAX_LENGTH: Final = 3_900
_SAFE: Final = ("GET", "HEAD", "OPTIONS")
_HASH: Final = "sha256"

_CSRF: Final = Kind(
    "csrf-token-needed", "The request does not come from the signed-in page", HTTPStatus.FORBIDDEN
)
_TOO_LARGE: Final = Kind(
    "session-too-large", "The caller has too many roles for a session", HTTPStatus.UNPROCESSABLE_ENTITY
)

PARAMETER: Final = "link"
# Characters of the maker's name, which the audit trail shows.
_MAX_NAME: Final = 200
_WRONG: Final = Kind("wrong-link", "The link is not valid", HTTPStatus.FORBIDDEN)
_ENDED: Final = Kind("link-ended", "The link has ended", HTTPStatus.FORBIDDEN)


@dataclass(frozen=True, slots=True)
class Session:
    """Content of a cookie: the caller that signed in.

    Attributes:
        kind: Sort of the credential that was sent.
        id: Identifier of the key or of the token's subject; see `Principal`.
        grants: Roles that a token gave, by collection; those of a key are looked up at each request.
        credential: Fingerprint of the key, so that another one under its id ends the session; empty for
            tokens.
        issued: Time of the sign-in, in seconds since 1970.
        expires: Time of its end, in seconds since 1970.
    """

    kind: Literal["key", "token"]
    id: str
    name: str
    grants: Mapping[str, frozenset[Role]]
    credential: str
    issued: int
    expires: int
    nonce: str

    @property
    def lifetime(self) -> int:
        """Seconds from the sign-in to its end."""
        return self.expires - self.issued


_SESSION: Final = TypeAdapter(Session)
Content = TypeVar("Content")


class SessionSigner:
    """Makes, signs and reads sessions and links, each with a signature that the other does not have."""

    def __init__(self, secret: bytes, clock: Callable[[], float] = time.time) -> None:
        self._secret = secret
        self.clock = clock

    @classmethod
    def from_home(cls, home: Path) -> "SessionSigner":
        """The signer with the secret of a home folder.

        Raises:
            HomeError: The file of the secret cannot be used.
        """
        return cls(
            home_secret(
                home / FILE, "The key of the page's sessions", without="everybody signs in again then"
            )
        )

    def begin(self, principal: Principal, key_digest: bytes | None) -> Session:
        """Return a session of a caller with the roles that its own credential gives.

        `key_digest` is the digest of its key; None for a token.
        """
        now = int(self.clock())
        return Session(
            "token" if key_digest is None else "key",
            principal.id,
            principal.name,
            principal.grants if key_digest is None else {},
            "" if key_digest is None else self._fingerprint(key_digest),
            now,
            now + LIFETIME_S if principal.expires is None else min(now + LIFETIME_S, int(principal.expires)),
            secrets.token_urlsafe(16),
        )

    def is_of(self, session: Session, key_digest: bytes) -> bool:
        """Whether a session was begun by a key."""
        return hmac.compare_digest(session.credential, self._fingerprint(key_digest))

    def seal(self, session: Session) -> str:
        """Return a session as its cookie has it.

        Raises:
            RequestError: No browser keeps a cookie of this length (422).
        """
        sealed = self.seal_content("session", _SESSION, session)
        if len(sealed) > _MAX_LENGTH:
            raise RequestError(
                _TOO_LARGE,
                f"The token gives roles in {len(session.grants)} collections, which no cookie holds: let its "
                "groups give roles in all collections (*), or sign in with an API key.",
            )
        return sealed

    def open(self, sealed: str) -> Session | None:
        """Return the session of a cookie; None where it has ended or is none of this service."""
        session = self.open_content("session", _SESSION, sealed)
        return session if session is not None and self.clock() < session.expires else None

    def seal_link(self, maker: Session, address: str) -> str:
        """Return the parameter `link` for an address of `linked_address`; it ends with the session."""
        return self.seal_content(f"link\n{address}", _SESSION, replace(maker, name=maker.name[:_MAX_NAME]))

    def open_link(self, sealed: str, address: str) -> Session:
        """Return the maker of a link.

        Raises:
            RequestError: The link is of another address or not signed here, or has ended (403).
        """
        maker = self.open_content(f"link\n{address}", _SESSION, sealed)
        if maker is None:
            raise wrong_link()
        if self.clock() >= maker.expires:
            raise ended_link()
        return maker

    def seal_content(self, purpose: str, kind: TypeAdapter[Content], content: Content) -> str:
        """Return a content with its signature, as a cookie has it; one for another purpose is not opened."""
        payload = _encoded(kind.dump_json(content))
        return f"{payload}.{_encoded(self._sign(purpose, payload))}"

    def open_content(self, purpose: str, kind: TypeAdapter[Content], sealed: str) -> Content | None:
        """Return a content that was sealed for a purpose; None where this version of the service has not."""
        payload, _, signature = sealed.partition(".")
        signed = self._sign(purpose, payload)
        try:
            if len(sealed) > _MAX_LENGTH or not hmac.compare_digest(_decoded(signature), signed):
                return None
            return kind.validate_json(_decoded(payload))
        except ValueError:
            # Not in base64, or signed by an older version.
            return None

    def csrf_token(self, session: Session) -> str:
        """Return the value that requests of a session that change something have to bring."""
        return _encoded(self._sign("csrf", session.nonce))

    def refuse_forged(self, request: HTTPConnection, session: Session) -> None:
        """Refuse a request that may change something and does not bring the session's CSRF token (403)."""
        if request.scope["method"] in _SAFE:
            return
        sent = request.headers.get(CSRF_HEADER, "")
        if not hmac.compare_digest(sent.encode(), self.csrf_token(session).encode()):
            raise RequestError(
                _CSRF,
                f"With the cookie of a session, this needs the header {CSRF_HEADER} with the csrf_token of "
                "GET /v1/session; programs send `Authorization: Bearer KEY` instead.",
            )

    def _fingerprint(self, key_digest: bytes) -> str:
        return _encoded(self._sign("key", key_digest.hex()))

    def _sign(self, purpose: str, text: str) -> bytes:
        return hmac.digest(self._secret, f"{purpose}:{text}".encode(), _HASH)


def set_cookie(
    request: HTTPConnection,
    response: Response,
    name: str,
    sealed: str,
    seconds: int,
    same_site: Literal["lax", "strict"] = "strict",
) -> None:
    """Give a browser a cookie that is for this service alone; with 0 seconds, the browser forgets it."""
    response.set_cookie(
        name,
        sealed,
        max_age=seconds,
        path=f"{request.scope.get('root_path', '')}/",
        secure=is_over_tls(request),
        httponly=True,
        samesite=same_site,
    )


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode("ascii")


def _decoded(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def wrong_link() -> RequestError:
    """The error of a link that was not signed here, or for another address."""
    return RequestError(
        _WRONG, "The link is of another picture or was changed: copy all of it, or ask for another."
    )


def ended_link() -> RequestError:
    """The error of a link whose time is over, or whose maker may not see the picture any more."""
    return RequestError(
        _ENDED, "The link has expired, or its maker may no longer see the picture: ask for another."
    )


def linked_address(
    collection_id: int, image_id: str, picture: str, parameters: Iterable[tuple[str, str]]
) -> str:
    """Return what a link signs: method, path without a proxy's prefix, and all other parameters.

    It contains the collection's key instead of its name, which another collection may get.
    """
    return f"GET {image_path(str(collection_id), image_id)}/{picture}?{urlencode(sorted(parameters))}"


def link_of(request: HTTPConnection) -> tuple[str, Callable[[int], str]] | None:
    """Return the link of a request for a picture, and the address that it opens.

    The address is a function of the key of the collection that the path names.
    """
    picture = request.scope[OPERATION].picture
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


def keep_as_long(response: Response, principal: Principal) -> None:
    """Let a browser keep a picture of a link as long as the link holds, and pages of other sites show it."""
    rest_s = 0 if principal.expires is None else max(0, int(principal.expires - time.time()))
    response.headers["Cache-Control"] = f"private, max-age={rest_s}"
    response.headers["Cross-Origin-Resource-Policy"] = "cross-origin"
