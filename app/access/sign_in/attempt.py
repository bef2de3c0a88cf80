"""Sign-ins that have begun: state, nonce and verifier, in a signed cookie of the browser that began them."""

import hmac
import re
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError
from starlette.requests import HTTPConnection
from starlette.responses import Response

from app.access.sessions import SessionSigner, cookie_attributes

COOKIE: Final = "recoquest_sign_in"
LIFETIME_S: Final = 600
_PURPOSE: Final = "sign-in"
_MAX_PATH_LENGTH: Final = 1_000
# Two slashes, or a slash and a backslash, would lead a browser to another site.
_OWN_PATH: Final = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,;=:@%-]+)*/?")


@dataclass(frozen=True, slots=True)
class SignInAttempt:
    """A sign-in that has begun and has not come back.

    Attributes:
        state: Value that the answer of the provider must bring back.
        nonce: Value that the ID token must have.
        verifier: Secret of PKCE (RFC 7636), whose hash the provider has been shown.
        return_to: Path of the page that it was begun on.
        expires: Time of its end, in seconds since 1970.
    """

    state: str
    nonce: str
    verifier: str
    return_to: str
    expires: int


_ATTEMPT: Final = TypeAdapter(SignInAttempt)


def is_own_path(text: str) -> bool:
    """Whether a text is a path, and nothing else, that every browser takes for one of the same origin."""
    return text.startswith("/") and len(text) <= _MAX_PATH_LENGTH and _OWN_PATH.fullmatch(text) is not None


class SignInAttempts:
    """Begins sign-ins, and finds out which one an answer belongs to.

    Args:
        signer: Signs their cookies.
        clock: Seconds since 1970.
    """

    def __init__(self, signer: SessionSigner, clock: Callable[[], float] = time.time) -> None:
        self._signer = signer
        self._clock = clock

    def begin(self, return_to: str) -> SignInAttempt:
        """Return a new sign-in that leads back to a path of this service.

        Raises:
            ValueError: The path is none of this service.
        """
        if not is_own_path(return_to):
            raise ValueError(f"{return_to!r} is no path of this service.")
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        return SignInAttempt(state, nonce, verifier, return_to, int(self._clock()) + LIFETIME_S)

    def give_cookie(self, request: HTTPConnection, response: Response, attempt: SignInAttempt) -> None:
        """Let the browser keep a sign-in; one that it has begun before is forgotten."""
        sealed = self._signer.seal_content(_PURPOSE, _ATTEMPT.dump_json(attempt))
        response.set_cookie(COOKIE, sealed, max_age=LIFETIME_S, **self._attributes(request))

    def take_cookie(self, request: HTTPConnection, response: Response) -> None:
        """Let the browser forget its sign-in, so that no answer is taken twice."""
        response.delete_cookie(COOKIE, **self._attributes(request))

    def find(self, request: HTTPConnection, state: str) -> SignInAttempt | None:
        """Return the sign-in of a browser; None where none was begun with this state, or it has ended."""
        content = self._signer.open_content(_PURPOSE, request.cookies.get(COOKIE, ""))
        if content is None:
            return None
        try:
            attempt = _ATTEMPT.validate_json(content)
        except ValidationError:
            # Signed by an older version.
            return None
        is_its = hmac.compare_digest(attempt.state.encode(), state.encode())
        return attempt if is_its and self._clock() < attempt.expires else None

    def _attributes(self, request: HTTPConnection) -> dict[str, Any]:
        # The answer comes from the provider's site: a cookie with Strict would not come along.
        return {**cookie_attributes(request), "samesite": "lax"}
