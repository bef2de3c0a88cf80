"""OpenID Connect: signing keys of a provider, tokens of programs, and sign-in of people by code and PKCE.

A sign-in that has begun is kept by the browser that began it: state, nonce and verifier in a signed cookie.
"""

import asyncio
import base64
import hmac
import json
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from http import HTTPStatus
from ssl import SSLContext, create_default_context
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus, urlencode

import structlog
from joserfc import jws, jwt
from joserfc.errors import ExpiredTokenError, JoseError
from joserfc.jwk import ECKey, JWKRegistry, OKPKey, RSAKey
from joserfc.jws import JWSRegistry
from pydantic import TypeAdapter
from starlette.requests import HTTPConnection
from starlette.responses import Response

from app.access.sessions import SessionSigner, set_cookie
from app.edge.operations import service_url
from app.edge.principal import Principal, Role
from app.edge.problems import Kind, RequestError
from app.setting_values import is_safe_url
from app.settings import Settings
from index.errors import shortened

if TYPE_CHECKING:
    from httpx2 import AsyncClient

# Signatures by private keys only: with a shared secret, any verifier could make tokens.
ALGORITHMS: Final = ("RS256", "PS256", "ES256", "EdDSA")
_KEY_TYPES: Final = {"RS256": "RSA", "PS256": "RSA", "ES256": "EC", "EdDSA": "OKP"}
_DISCOVERY: Final = "/.well-known/openid-configuration"
_MIN_RSA_BITS: Final = 2048
_MAX_BYTES: Final = 1 << 20
_MAX_KEYS: Final = 100
_TIMEOUT_S: Final = 5.0
# Limit for a complete answer.
_ANSWER_S: Final = 10.0
_HEADERS: Final = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "recoquest"}
# Keys that the provider has withdrawn stay valid for at most this long.
_MAX_AGE_S: Final = 300.0
# A token can name any key: for a new one the provider is asked at most this often.
_PAUSE_S: Final = 30.0

SigningKey = RSAKey | ECKey | OKPKey
Fetch = Callable[[str], Awaitable[Any]]
# Metadata of a provider (OpenID Connect Discovery 1.0).
Discovery = Mapping[str, Any]

_log = structlog.stdlib.get_logger(__name__)


class ProviderError(Exception):
    """The provider does not answer, or not as OpenID Connect Discovery says."""


class UnknownSigningKeyError(Exception):
    """The provider has no key of this identifier and algorithm."""


def _address(discovery: Discovery, name: str) -> str | None:
    """A safe address, which may have its own query; None if the provider has none."""
    address = discovery.get(name)
    fits = isinstance(address, str) and "#" not in address and is_safe_url(address.partition("?")[0])
    return address if fits else None


def _texts(discovery: Discovery, name: str) -> list[str]:
    """The texts of a list; empty if the provider has none."""
    texts = discovery.get(name)
    return [one for one in (texts if isinstance(texts, list) else ()) if isinstance(one, str)]


class Provider:
    """An OpenID Connect provider, whose `issuer` is its address exactly as its tokens have it."""

    def __init__(
        self, issuer: str, fetch: Fetch | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.issuer = issuer
        self._fetch = fetch or fetch_json
        self._clock = clock
        self._keys: list[SigningKey] = []
        self._discovery: Discovery | None = None
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._lock = asyncio.Lock()
        self._renewal: asyncio.Task[None] | None = None

    async def signing_key(self, algorithm: str, kid: str | None) -> SigningKey:
        """Return the key that a token claims to be signed by.

        Raises:
            UnknownSigningKeyError: The provider has none.
            ProviderError: It cannot be reached now, and the key is not cached.
        """
        key = self._find(algorithm, kid)
        if key is None or self._is_older_than(2 * _MAX_AGE_S):
            # After a pause without requests, a key may have been withdrawn long ago.
            await self._renew()
            key = self._find(algorithm, kid)
        elif self._is_older_than(_MAX_AGE_S) and (self._renewal is None or self._renewal.done()):
            # Requests do not wait for a provider whose key they have.
            self._renewal = asyncio.create_task(self._renew())
        if key is not None:
            return key
        if self._fetched_at is None or self._fetched_at != self._tried_at:
            raise ProviderError(f"{self.issuer} does not answer.")
        raise UnknownSigningKeyError

    async def discovery(self) -> Discovery:
        """Return the provider's metadata.

        Raises:
            ProviderError: It cannot be reached now, and the metadata is not cached.
        """
        if self._is_older_than(2 * _MAX_AGE_S):
            await self._renew()
        if self._discovery is None:
            raise ProviderError(f"{self.issuer} does not answer.")
        return self._discovery

    def _is_older_than(self, seconds: float) -> bool:
        return self._fetched_at is None or self._clock() - self._fetched_at > seconds

    def _find(self, algorithm: str, kid: str | None) -> SigningKey | None:
        named = [key for key in self._keys if kid is None or key.kid == kid]
        key_type = _KEY_TYPES[algorithm]
        fitting = [
            key for key in named if key.key_type == key_type and key.get("alg", algorithm) == algorithm
        ]
        # Without an identifier, two keys can't be distinguished.
        return fitting[0] if len(fitting) == 1 else None

    async def _renew(self) -> None:
        """Read the keys again, unless that was just tried; the cached ones stay if it fails."""
        async with self._lock:
            now = self._clock()
            if self._tried_at is not None and now - self._tried_at < _PAUSE_S:
                return
            self._tried_at = now
            try:
                self._discovery, self._keys = await self._read_documents()
            except ProviderError as error:
                _log.warning("the identity provider cannot be used", reason=str(error))
            else:
                self._fetched_at = now

    async def _read_documents(self) -> tuple[Discovery, list[SigningKey]]:
        discovery = await self._fetch(self.issuer.rstrip("/") + _DISCOVERY)
        if not isinstance(discovery, dict) or discovery.get("issuer") != self.issuer:
            raise ProviderError(
                f"The provider's own name is not {self.issuer!r}: mend RECOQUEST_OIDC_ISSUER."
            )
        address = _address(discovery, "jwks_uri")
        if address is None:
            raise ProviderError("The provider names no address of its keys that begins with https.")
        documents = await self._fetch(address)
        entries = documents.get("keys") if isinstance(documents, dict) else None
        if not isinstance(entries, list):
            raise ProviderError("The provider's keys are no JSON Web Key Set.")
        keys = (_signing_key(entry) for entry in entries[:_MAX_KEYS])
        return discovery, [key for key in keys if key is not None]


def _signing_key(entry: Any) -> SigningKey | None:
    """A public key for signatures; None for another, or one that cannot be read."""
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    if entry.get("kty") not in _KEY_TYPES.values() or not isinstance(entry.get("kid"), str | None):
        return None
    try:
        key = JWKRegistry.import_key({name: value for name, value in entry.items() if name not in _UNUSED})
    except (JoseError, ValueError, TypeError) as error:
        _log.warning("a key of the identity provider cannot be read", error=type(error).__name__)
        return None
    if isinstance(key, RSAKey):
        return key if key.raw_value.key_size >= _MIN_RSA_BITS else None
    return key if isinstance(key, ECKey | OKPKey) else None


# Certificates of a key, which aren't checked.
_UNUSED: Final = frozenset({"x5c", "x5t", "x5t#S256", "x5u"})


@cache
def _certificates() -> SSLContext:
    """Read the certificates of the system, which takes longer than a sign-in."""
    return create_default_context()


def _open_client() -> "AsyncClient":
    """Return a client; its import takes time."""
    from httpx2 import AsyncClient

    return AsyncClient(timeout=_TIMEOUT_S, verify=_certificates(), headers=_HEADERS)


async def fetch_json(url: str) -> Any:
    """Read a JSON document."""
    status, document = await ask(url)
    if status >= HTTPStatus.MULTIPLE_CHOICES:
        raise ProviderError(f"{url} answers with status {status}.")
    return document


async def ask(
    url: str, form: Mapping[str, str] | None = None, auth: tuple[str, str] | None = None
) -> tuple[int, Any]:
    """Send a request, a form if there is one; return the status and the JSON document of its answer.

    A redirection is not followed: it may lead to an address that is not safe. The document is of limited size
    and read within a limited time. It is None if an unsuccessful answer has none.

    Raises:
        ProviderError: There is no answer, or a successful one without such a document.
    """
    method, content = "GET" if form is None else "POST", bytearray()
    opened = await asyncio.to_thread(_open_client)
    from httpx2 import HTTPError, InvalidURL

    try:
        async with (
            asyncio.timeout(_ANSWER_S),
            opened as client,
            client.stream(method, url, data=form, auth=auth) as answer,
        ):
            async for part in answer.aiter_raw():
                content += part
                if len(content) > _MAX_BYTES:
                    raise ProviderError(f"{url} answers with over {_MAX_BYTES:,} bytes.")
    except (HTTPError, InvalidURL, OSError) as error:
        raise ProviderError(f"{url} cannot be reached: {str(error) or type(error).__name__}.") from error
    try:
        return answer.status_code, json.loads(content)
    except (ValueError, RecursionError) as error:
        if answer.status_code >= HTTPStatus.MULTIPLE_CHOICES:
            return answer.status_code, None
        raise ProviderError(f"{url} has no JSON document.") from error


_LEEWAY_S: Final = 60
_MAX_LENGTH: Final = 32_768
_MAX_HEADER_LENGTH: Final = 8_192
_MAX_NAME_LENGTH: Final = 100
# RFC 9068 has the second, most providers the first or none; tokens for other ends name themselves.
_TYPES: Final = ("jwt", "at+jwt", "application/at+jwt")
_ID_TYPES: Final = ("jwt",)
# Claims with a name for people, the best first.
_NAMES: Final = ("preferred_username", "name", "email", "client_id", "azp", "sub")
CHALLENGE: Final = 'Bearer error="invalid_token"'
_WRONG: Final = Kind("wrong-token", "The token is not valid", HTTPStatus.UNAUTHORIZED, authenticate=CHALLENGE)
EXPIRED: Final = Kind(
    "token-expired", "The token has expired", HTTPStatus.UNAUTHORIZED, authenticate=CHALLENGE
)
_NO_PROVIDER: Final = Kind(
    "identity-provider-unavailable",
    "The identity provider does not answer",
    HTTPStatus.SERVICE_UNAVAILABLE,
    retry_after_s=30,
)


async def verify_token(
    token: str, provider: Provider, settings: Settings, audience: str, nonce: str | None = None
) -> Principal:
    """Return the caller that a token of a provider for an audience names.

    With a `nonce`, the token is the ID token of a sign-in that began with it (OpenID Connect Core 1.0,
    section 3.1.3.7); otherwise an access token.

    Raises:
        RequestError: The token is not valid or has expired (401), or the provider's keys are unknown
            and it does not answer (503).
    """
    try:
        claims = await _checked_claims(token, provider, audience, nonce)
    except ProviderError as error:
        raise RequestError(
            _NO_PROVIDER, "The identity provider does not answer: try again later, or send an API key."
        ) from error
    except ExpiredTokenError as error:
        raise RequestError(EXPIRED, "The token has expired: get a new one.") from error
    except (UnknownSigningKeyError, JoseError, ValueError) as error:
        # The claim's name helps; its value, or the library's words, might quote the token.
        at_fault = getattr(error, "claim", None)
        reason = f"its claim {at_fault!r}" if at_fault else "its form or signature"
        raise RequestError(
            _WRONG, f"The token is not one for this service: {reason} does not fit."
        ) from error
    grants: dict[str, frozenset[Role]] = {}
    for group in _groups_of(claims, settings.oidc_groups_claim):
        for collection, roles in settings.oidc_roles.get(group, {}).items():
            grants[collection] = grants.get(collection, frozenset()) | roles
    subject = f"{provider.issuer}#{claims['sub']}"
    return Principal("token", subject, _name_of(claims), grants, float(claims["exp"]))


async def _checked_claims(
    token: str, provider: Provider, audience: str, nonce: str | None
) -> Mapping[str, Any]:
    if len(token) > _MAX_LENGTH:
        raise ValueError("The token is too long.")
    registry = JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
    registry.max_header_length = _MAX_HEADER_LENGTH
    header = jws.extract_compact(token.encode("ascii"), registry=registry).headers()
    algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ", "JWT")
    types: Sequence[str] = _TYPES
    further: dict[str, Any] = {}
    if nonce is not None:
        types = _ID_TYPES
        further = {"nonce": {"essential": True, "value": nonce}, "azp": {"value": audience}}
    if algorithm not in ALGORITHMS or str(kind).lower() not in types:
        raise ValueError("The token has another type or algorithm.")
    key = await provider.signing_key(algorithm, kid if isinstance(kid, str) else None)
    claims = jwt.decode(token, key, algorithms=[algorithm], registry=registry).claims
    claims_registry = jwt.JWTClaimsRegistry(
        leeway=_LEEWAY_S,
        iss={"essential": True, "value": provider.issuer},
        aud={"essential": True, "value": audience},
        sub={"essential": True},
        exp={"essential": True},
        **further,
    )
    claims_registry.validate(claims)
    if not isinstance(claims["sub"], str) or not claims["sub"]:
        raise ValueError("The token has no subject.")
    return claims


def _groups_of(claims: Mapping[str, Any], name: str) -> list[str]:
    """The groups of a claim, which is a text or a list of texts; others are none."""
    groups: Any = claims.get(name)
    if groups is None:
        groups = claims
        for part in name.split("."):
            groups = groups.get(part) if isinstance(groups, Mapping) else None
    if isinstance(groups, str):
        return [groups]
    return [group for group in groups if isinstance(group, str)] if isinstance(groups, list) else []


def _name_of(claims: Mapping[str, Any]) -> str:
    names = (claims.get(name) for name in _NAMES)
    name = next(name for name in names if isinstance(name, str) and name)
    return shortened("".join(char for char in name if char.isprintable()), _MAX_NAME_LENGTH)


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
_ERROR: Final = re.compile(r"[a-z_]{1,64}")
# Errors of a provider that pass.
TEMPORARY: Final = frozenset({"server_error", "temporarily_unavailable"})


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


def begin_attempt(signer: SessionSigner, return_to: str) -> SignInAttempt:
    """Return a new sign-in that leads back to a path of this service."""
    if not is_own_path(return_to):
        raise ValueError(f"{return_to!r} is no path of this service.")
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    return SignInAttempt(state, nonce, verifier, return_to, int(signer.clock()) + LIFETIME_S)


def keep_attempt(
    request: HTTPConnection, response: Response, signer: SessionSigner, attempt: SignInAttempt | None
) -> None:
    """Let the browser keep this sign-in alone; None: no sign-in, so that no answer is taken twice."""
    sealed = "" if attempt is None else signer.seal_content(_PURPOSE, _ATTEMPT, attempt)
    # The answer comes from the provider's site: a cookie with Strict would not come along.
    set_cookie(request, response, COOKIE, sealed, 0 if attempt is None else LIFETIME_S, "lax")


def find_attempt(request: HTTPConnection, signer: SessionSigner, state: str) -> SignInAttempt | None:
    """Return the sign-in of a browser; None where none was begun with this state, or it has ended."""
    attempt = signer.open_content(_PURPOSE, _ATTEMPT, request.cookies.get(COOKIE, ""))
    if attempt is None or not hmac.compare_digest(attempt.state.encode(), state.encode()):
        return None
    return attempt if signer.clock() < attempt.expires else None


class CodeRefusedError(Exception):
    """The provider gives no token for a code."""


class CodeFlow:
    """Sign-in of people at a provider, where the service is a client.

    Without a client's secret in the settings, PKCE alone protects it; without a public URL, the address of
    the service is taken from requests.
    """

    def __init__(self, settings: Settings, provider: Provider, client_id: str) -> None:
        self.issuer = provider.issuer
        self._provider = provider
        self._client_id = client_id
        self._settings = settings

    def redirect_uri(self, request: HTTPConnection) -> str:
        """Return the address that the provider sends browsers back to."""
        return service_url(request, self._settings) + CALLBACK

    async def authorization_url(self, attempt: SignInAttempt, redirect_uri: str) -> str:
        """Return the address of the provider where a person signs in.

        Raises:
            ProviderError: The provider does not answer, or has no such address.
        """
        discovery = await self._provider.discovery()
        page, scopes = _address(discovery, "authorization_endpoint"), _texts(discovery, "scopes_supported")
        if page is None:
            raise ProviderError(f"{self.issuer} has no page to sign in at.")
        scopes_to_request = [scope for scope in _SCOPES if scope in (*scopes, "openid")]
        challenge = base64.urlsafe_b64encode(sha256(attempt.verifier.encode()).digest()).rstrip(b"=")
        parameters = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": redirect_uri,
            "scope": " ".join(scopes_to_request if scopes else _SCOPES_OF_ALL),
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": challenge.decode("ascii"),
            "code_challenge_method": "S256",
        }
        return _with_query(page, parameters)

    async def redeem(self, code: str, attempt: SignInAttempt, redirect_uri: str) -> Principal:
        """Return the person for whom the provider has given a code, which came to `redirect_uri`.

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
        token = await self._ask_for_token(discovery, form)
        return await verify_token(token, self._provider, self._settings, self._client_id, attempt.nonce)

    async def sign_out_url(self) -> str | None:
        """Return the address where the provider ends its own session; None if it has none now."""
        try:
            page = _address(await self._provider.discovery(), "end_session_endpoint")
        except ProviderError:
            _log.warning("the sign-out page of the identity provider is unknown")
            return None
        return None if page is None else _with_query(page, {"client_id": self._client_id})

    async def _ask_for_token(self, discovery: Discovery, form: dict[str, str]) -> str:
        url, auth = _address(discovery, "token_endpoint"), None
        if url is None:
            raise ProviderError(f"{self.issuer} has no address that gives tokens.")
        if self._settings.oidc_client_secret is not None:
            secret = self._settings.oidc_client_secret.get_secret_value()
            # The first is the default of OpenID Connect Discovery.
            ways = _texts(discovery, "token_endpoint_auth_methods_supported")
            if not ways or "client_secret_basic" in ways:
                # RFC 6749, section 2.3.1: both parts are encoded as in a form.
                auth = quote_plus(self._client_id), quote_plus(secret)
            else:
                form["client_secret"] = secret
        status, answer = await ask(url, form, auth)
        response = answer if isinstance(answer, dict) else {}
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            reason = error_name(response.get("error"))
            away = status >= HTTPStatus.INTERNAL_SERVER_ERROR or reason in TEMPORARY
            refused = ProviderError if away else CodeRefusedError
            raise refused(f"{url} answers with status {status}: {reason}.")
        token = response.get("id_token")
        if not isinstance(token, str) or not token.isascii():
            raise CodeRefusedError(f"{url} gives no ID token: let the client have the scope openid.")
        return token


def error_name(sent: object) -> str:
    """Return an OAuth error in a form that is safe to log."""
    return sent if isinstance(sent, str) and _ERROR.fullmatch(sent) else "no known error"


def _with_query(url: str, parameters: Mapping[str, str]) -> str:
    return f"{url}{'&' if '?' in url else '?'}{urlencode(parameters)}"
