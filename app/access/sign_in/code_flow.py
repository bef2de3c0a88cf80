"""The authorization code flow of OpenID Connect, with PKCE: to the provider, and back with a code."""

import asyncio
import base64
import json
import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from http.client import HTTPException, HTTPResponse
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote_plus, urlencode
from urllib.request import Request

import structlog
from starlette.requests import HTTPConnection

from app.access.principal import Principal
from app.access.provider import Endpoints, Provider, ProviderError, open_json, read_limited
from app.access.sessions import is_over_tls
from app.access.sign_in.attempt import SignInAttempt
from app.access.tokens import TokenVerifier
from app.settings import Settings

CALLBACK: Final = "/v1/session/callback"
# Groups are a scope of their own at some providers, and part of the profile at others.
_SCOPES: Final = ("openid", "profile", "email", "groups")
_SCOPES_OF_ALL: Final = ("openid", "profile")
# Requests to the provider at a time; each takes a thread.
_AT_A_TIME: Final = 4
_ERROR: Final = re.compile(r"[a-z_]{1,64}")
_TEMPORARY: Final = frozenset({"server_error", "temporarily_unavailable"})

Send = Callable[[Request], Any]

_log = structlog.stdlib.get_logger(__name__)


class CodeRefusedError(Exception):
    """The provider gives no token for a code."""


class CodeFlow:
    """Sign-in of people at a provider.

    Args:
        provider: The provider.
        client_id: The client that the service is there.
        client_secret: Its secret; None: it is a public client, which PKCE alone protects.
        verifier: Checks ID tokens for the client.
        public_url: Address of the service in browsers; None: requests tell it.
        send: Sends a request and reads the JSON document of its answer; see `open_json`.
    """

    def __init__(
        self,
        provider: Provider,
        client_id: str,
        client_secret: str | None,
        verifier: TokenVerifier,
        public_url: str | None = None,
        send: Send = open_json,
    ) -> None:
        self.issuer = provider.issuer
        self._provider = provider
        self._client_id = client_id
        self._client_secret = client_secret
        self._verifier = verifier
        self._public_url = public_url
        self._send = send
        self._slots = asyncio.Semaphore(_AT_A_TIME)

    @classmethod
    def of(cls, settings: Settings, provider: Provider) -> "CodeFlow | None":
        """The flow that the settings describe; None without a client."""
        client_id, secret = settings.oidc_client_id, settings.oidc_client_secret
        if client_id is None:
            return None
        verifier = TokenVerifier(provider, client_id, settings.oidc_groups_claim, settings.oidc_roles)
        shown = None if secret is None else secret.get_secret_value()
        return cls(provider, client_id, shown, verifier, settings.public_url)

    def redirect_uri(self, request: HTTPConnection) -> str:
        """Return the address that the provider sends browsers back to."""
        if self._public_url is not None:
            return self._public_url + CALLBACK
        scheme = "https" if is_over_tls(request) else "http"
        return f"{scheme}://{request.headers.get('host', '')}{request.scope.get('root_path', '')}{CALLBACK}"

    async def authorization_url(self, attempt: SignInAttempt, redirect_uri: str) -> str:
        """Return the address of the provider where a person signs in.

        Raises:
            ProviderError: The provider does not answer, or has no such address.
        """
        endpoints = await self._provider.endpoints()
        known = [scope for scope in _SCOPES if scope in endpoints.scopes | {"openid"}]
        challenge = base64.urlsafe_b64encode(sha256(attempt.verifier.encode()).digest()).rstrip(b"=")
        parameters = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": redirect_uri,
            "scope": " ".join(known if endpoints.scopes else _SCOPES_OF_ALL),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": challenge.decode("ascii"),
            "code_challenge_method": "S256",
        }
        if endpoints.authorization is None:
            raise ProviderError(f"{self.issuer} has no page to sign in at.")
        return _with_query(endpoints.authorization, parameters)

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
        endpoints = await self._provider.endpoints()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": attempt.verifier,
        }
        async with self._slots:
            token = await asyncio.to_thread(self._ask_for_token, endpoints, form)
        return await self._verifier.verify_id_token(token, attempt.nonce)

    async def sign_out_url(self) -> str | None:
        """Return the address where the provider ends its own session; None where it tells of none now."""
        try:
            endpoints = await self._provider.endpoints()
        except ProviderError:
            _log.warning("the sign-out of the identity provider is not known")
            return None
        if endpoints.end_session is None:
            return None
        return _with_query(endpoints.end_session, {"client_id": self._client_id})

    def _ask_for_token(self, endpoints: Endpoints, form: Mapping[str, str]) -> str:
        url = endpoints.token
        if url is None:
            raise ProviderError(f"{self.issuer} has no address that gives tokens.")
        headers = {"Accept": "application/json", "User-Agent": "recoquest"}
        sent = {**form, "client_id": self._client_id}
        if self._client_secret is not None:
            if "client_secret_basic" in endpoints.token_authentication:
                # RFC 6749, section 2.3.1: both parts are encoded as in a form.
                pair = f"{quote_plus(self._client_id)}:{quote_plus(self._client_secret)}"
                headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode('ascii')}"
            else:
                sent["client_secret"] = self._client_secret
        try:
            answer = self._send(Request(url, urlencode(sent).encode("ascii"), headers))
        except HTTPError as error:
            reason = _reason_of(error)
            if error.code >= 500 or reason in _TEMPORARY:
                raise ProviderError(f"{url} answers with status {error.code}.") from error
            raise CodeRefusedError(f"{url} answers with status {error.code}: {reason}.") from error
        except (OSError, HTTPException, ValueError) as error:
            raise ProviderError(f"{url} gives no answer that can be read.") from error
        token = answer.get("id_token") if isinstance(answer, dict) else None
        if not isinstance(token, str) or not token.isascii():
            raise CodeRefusedError(f"{url} gives no ID token: let the client have the scope openid.")
        return token


def error_name(sent: object) -> str:
    """Return an error of OAuth as a log may have it."""
    return sent if isinstance(sent, str) and _ERROR.fullmatch(sent) else "no known error"


def _reason_of(error: HTTPError) -> str:
    with error:
        try:
            document = json.loads(read_limited(error.fp)) if isinstance(error.fp, HTTPResponse) else None
        except (OSError, HTTPException, ValueError):
            document = None
    return error_name(document.get("error") if isinstance(document, dict) else None)


def _with_query(url: str, parameters: Mapping[str, str]) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(parameters)}"
