"""Sign-in of people at an identity provider: the authorization code flow of OpenID Connect, with PKCE.

A sign-in that has begun is kept by the browser that began it: state, nonce and verifier in a signed cookie.
"""

import asyncio
import base64
import hmac
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote_plus, urlencode

import structlog
from pydantic import TypeAdapter
from starlette.requests import HTTPConnection
from starlette.responses import Response

from app.access.provider import Discovery, Provider, ProviderError, ask
from app.access.sessions import SessionSigner, cookie_attributes
from app.access.tokens import TokenVerifier
from app.edge.http.addresses import service_url
from app.edge.principal import Principal
from app.settings import Settings

COOKIE: Final = "recoquest_sign_in"
LIFETIME_S: Final = 600
CALLBACK: Final = "/v1/session/callback"
_PURPOSE: Final = "sign-in"
_MAX_PATH_LENGTH: Final = 1_000
# Two slashes, or a slash and a backslash, would lead a browser to another site.
_OWN_PATH: Final = re.compile(r"(/[A-Za-z0-9._~!$&'()*+,;=:@%-]+)*/?")
# Groups are a scope of their own at some providers, and part of the profile at others.
_SCOPES: Final = ("openid", "profile", "email", "groups")
_SCOPES_OF_ALL: Final = ("openid", "profile")
# Requests to the provider at a time; each takes a thread.
_AT_A_TIME: Final = 4
_ERROR: Final = re.compile(r"[a-z_]{1,64}")
# Errors of a provider that pass.
TEMPORARY: Final = frozenset({"server_error", "temporarily_unavailable"})

_log = structlog.stdlib.get_logger(__name__)


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


@dataclass(frozen=True, slots=True)
class SignInAttempts:
    """Begins sign-ins, and finds out which one an answer belongs to.

    Attributes:
        signer: Signs their cookies.
        clock: Seconds since 1970.
    """

    signer: SessionSigner
    clock: Callable[[], float] = time.time

    def begin(self, return_to: str) -> SignInAttempt:
        """Return a new sign-in that leads back to a path of this service.

        Raises:
            ValueError: The path is none of this service.
        """
        if not is_own_path(return_to):
            raise ValueError(f"{return_to!r} is no path of this service.")
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        return SignInAttempt(state, nonce, verifier, return_to, int(self.clock()) + LIFETIME_S)

    def give_cookie(self, request: HTTPConnection, response: Response, attempt: SignInAttempt) -> None:
        """Let the browser keep a sign-in; one that it has begun before is forgotten."""
        sealed = self.signer.seal_content(_PURPOSE, _ATTEMPT, attempt)
        response.set_cookie(COOKIE, sealed, max_age=LIFETIME_S, **self._attributes(request))

    def take_cookie(self, request: HTTPConnection, response: Response) -> None:
        """Let the browser forget its sign-in, so that no answer is taken twice."""
        response.delete_cookie(COOKIE, **self._attributes(request))

    def find(self, request: HTTPConnection, state: str) -> SignInAttempt | None:
        """Return the sign-in of a browser; None where none was begun with this state, or it has ended."""
        attempt = self.signer.open_content(_PURPOSE, _ATTEMPT, request.cookies.get(COOKIE, ""))
        if attempt is None or not hmac.compare_digest(attempt.state.encode(), state.encode()):
            return None
        return attempt if self.clock() < attempt.expires else None

    def _attributes(self, request: HTTPConnection) -> dict[str, Any]:
        # The answer comes from the provider's site: a cookie with Strict would not come along.
        return {**cookie_attributes(request), "samesite": "lax"}


class CodeRefusedError(Exception):
    """The provider gives no token for a code."""


class CodeFlow:
    """Sign-in of people at a provider.

    Args:
        settings: Tell the client's secret, without which PKCE alone protects it; the roles of groups; and the
            address of the service in browsers, without which requests tell it.
        provider: The provider.
        client_id: The client that the service is there.
    """

    def __init__(self, settings: Settings, provider: Provider, client_id: str) -> None:
        self.issuer = provider.issuer
        self._provider = provider
        self._client_id = client_id
        self._settings = settings
        self._verifier = TokenVerifier(settings, provider, client_id)
        self._slots = asyncio.Semaphore(_AT_A_TIME)

    def redirect_uri(self, request: HTTPConnection) -> str:
        """Return the address that the provider sends browsers back to."""
        return service_url(request, self._settings) + CALLBACK

    async def authorization_url(self, attempt: SignInAttempt, redirect_uri: str) -> str:
        """Return the address of the provider where a person signs in.

        Raises:
            ProviderError: The provider does not answer, or has no such address.
        """
        discovery = await self._provider.discovery()
        page, scopes = discovery.address("authorization_endpoint"), discovery.texts("scopes_supported")
        if page is None:
            raise ProviderError(f"{self.issuer} has no page to sign in at.")
        known = [scope for scope in _SCOPES if scope in scopes | {"openid"}]
        challenge = base64.urlsafe_b64encode(sha256(attempt.verifier.encode()).digest()).rstrip(b"=")
        parameters = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": redirect_uri,
            "scope": " ".join(known if scopes else _SCOPES_OF_ALL),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": challenge.decode("ascii"),
            "code_challenge_method": "S256",
        }
        return _with_query(page, parameters)

    async def redeem(self, code: str, attempt: SignInAttempt, redirect_uri: str) -> Principal:
        """Return the person for whom the provider has given a code.

        Args:
            code: The code.
            attempt: The sign-in that it answers.
            redirect_uri: Address that the code came to.

        Raises:
            ProviderError: The provider does not answer.
            CodeRefusedError: It gives no ID token for the code.
            RequestError: Its ID token is not valid.
        """
        discovery = await self._provider.discovery()
        form = {
            "client_id": self._client_id,
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": attempt.verifier,
        }
        async with self._slots:
            token = await asyncio.to_thread(self._ask_for_token, discovery, form)
        return await self._verifier.verify(token, attempt.nonce)

    async def sign_out_url(self) -> str | None:
        """Return the address where the provider ends its own session; None where it tells of none now."""
        try:
            page = (await self._provider.discovery()).address("end_session_endpoint")
        except ProviderError:
            _log.warning("the sign-out of the identity provider is not known")
            return None
        return None if page is None else _with_query(page, {"client_id": self._client_id})

    def _ask_for_token(self, discovery: Discovery, form: dict[str, str]) -> str:
        url, headers = discovery.address("token_endpoint"), {}
        if url is None:
            raise ProviderError(f"{self.issuer} has no address that gives tokens.")
        if self._settings.oidc_client_secret is not None:
            secret = self._settings.oidc_client_secret.get_secret_value()
            # The first is the default of OpenID Connect Discovery.
            ways = discovery.texts("token_endpoint_auth_methods_supported") or {"client_secret_basic"}
            if "client_secret_basic" in ways:
                # RFC 6749, section 2.3.1: both parts are encoded as in a form.
                pair = f"{quote_plus(self._client_id)}:{quote_plus(secret)}"
                headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode('ascii')}"
            else:
                form["client_secret"] = secret
        status, answer = ask(url, form, **headers)
        told = answer if isinstance(answer, dict) else {}
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            reason = error_name(told.get("error"))
            away = status >= HTTPStatus.INTERNAL_SERVER_ERROR or reason in TEMPORARY
            refused = ProviderError if away else CodeRefusedError
            raise refused(f"{url} answers with status {status}: {reason}.")
        token = told.get("id_token")
        if not isinstance(token, str) or not token.isascii():
            raise CodeRefusedError(f"{url} gives no ID token: let the client have the scope openid.")
        return token


def error_name(sent: object) -> str:
    """Return an error of OAuth as a log may have it."""
    return sent if isinstance(sent, str) and _ERROR.fullmatch(sent) else "no known error"


def _with_query(url: str, parameters: Mapping[str, str]) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(parameters)}"
