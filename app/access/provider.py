"""The signing keys of an OpenID Connect provider, fetched over HTTPS and kept."""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from itertools import chain
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

import structlog
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, JWKRegistry, OKPKey, RSAKey

from app.setting_values import is_safe_url

# Signatures by private keys only: with a shared secret, whoever checks a token could make one.
ALGORITHMS: Final = ("RS256", "PS256", "ES256", "EdDSA")
_KEY_TYPES: Final = {"RS256": "RSA", "PS256": "RSA", "ES256": "EC", "EdDSA": "OKP"}
_DISCOVERY: Final = "/.well-known/openid-configuration"
_MIN_RSA_BITS: Final = 2048
_MAX_BYTES: Final = 1 << 20
_MAX_KEYS: Final = 100
_TIMEOUT_S: Final = 5.0
# Keys that the provider has withdrawn are known for as long as this.
_MAX_AGE_S: Final = 300.0
# A token names any key it likes: for a new one the provider is asked this often at most.
_PAUSE_S: Final = 30.0

SigningKey = RSAKey | ECKey | OKPKey
Fetch = Callable[[str], Any]

_log = structlog.stdlib.get_logger(__name__)


class ProviderError(Exception):
    """The provider does not answer, or not as OpenID Connect Discovery says."""


class UnknownSigningKeyError(Exception):
    """The provider has no key of this identifier and algorithm."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Addresses of a provider, and the choices that it offers there.

    Attributes:
        authorization: Page where people sign in; None: it has none that is safe.
        token: Address that gives tokens for codes; None: it has none that is safe.
        end_session: Page where people sign out; None: it has none that is safe.
        scopes: Scopes that it knows; empty: it does not tell.
        token_authentication: Ways in which clients prove themselves at the token address.
    """

    authorization: str | None
    token: str | None
    end_session: str | None
    scopes: frozenset[str]
    token_authentication: frozenset[str]


class Provider:
    """An OpenID Connect provider.

    Args:
        issuer: Its address, exactly as its tokens have it.
        fetch: Reads a JSON document; raises ProviderError.
        clock: Seconds that never go back.
    """

    def __init__(
        self, issuer: str, fetch: Fetch | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.issuer = issuer
        self._fetch = fetch or fetch_json
        self._clock = clock
        self._keys: dict[str | None, list[SigningKey]] = {}
        self._endpoints: Endpoints | None = None
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._lock = asyncio.Lock()
        self._renewal: asyncio.Task[None] | None = None

    async def signing_key(self, algorithm: str, kid: str | None) -> SigningKey:
        """Return the key that a token says it is signed by.

        Raises:
            UnknownSigningKeyError: The provider has none.
            ProviderError: It cannot be asked now, and the key is not known from before.
        """
        found = self._find(algorithm, kid)
        if found is None or self._is_older_than(2 * _MAX_AGE_S):
            # After a pause without requests, a key may have been withdrawn long ago.
            await self._renew()
            found = self._find(algorithm, kid)
        elif self._is_older_than(_MAX_AGE_S) and (self._renewal is None or self._renewal.done()):
            # Requests do not wait for a provider whose key they have.
            self._renewal = asyncio.create_task(self._renew())
        if found is not None:
            return found
        if self._fetched_at is None or self._fetched_at != self._tried_at:
            raise ProviderError(f"{self.issuer} does not answer.")
        raise UnknownSigningKeyError

    async def endpoints(self) -> Endpoints:
        """Return the addresses of the provider.

        Raises:
            ProviderError: It cannot be asked now, and they are not known from before.
        """
        if self._endpoints is None or self._is_older_than(2 * _MAX_AGE_S):
            await self._renew()
        if self._endpoints is None:
            raise ProviderError(f"{self.issuer} does not answer.")
        return self._endpoints

    def _is_older_than(self, seconds: float) -> bool:
        return self._fetched_at is None or self._clock() - self._fetched_at > seconds

    def _find(self, algorithm: str, kid: str | None) -> SigningKey | None:
        wanted = _KEY_TYPES[algorithm]
        keys = self._keys.get(kid, []) if kid is not None else list(chain.from_iterable(self._keys.values()))
        fitting = [key for key in keys if key.key_type == wanted and key.get("alg", algorithm) == algorithm]
        # Without an identifier, two keys cannot be told apart.
        return fitting[0] if len(fitting) == 1 else None

    async def _renew(self) -> None:
        """Read the keys again, unless that was tried a moment ago; those that are known stay if it fails."""
        async with self._lock:
            now = self._clock()
            if self._tried_at is not None and now - self._tried_at < _PAUSE_S:
                return
            self._tried_at = now
            try:
                self._endpoints, self._keys = await asyncio.to_thread(self._read_documents)
            except ProviderError as error:
                _log.warning("the identity provider cannot be used", reason=str(error))
            else:
                self._fetched_at = now

    def _read_documents(self) -> tuple[Endpoints, dict[str | None, list[SigningKey]]]:
        found = self._fetch(self.issuer.rstrip("/") + _DISCOVERY)
        if not isinstance(found, dict) or found.get("issuer") != self.issuer:
            raise ProviderError(
                f"The provider's own name is not {self.issuer!r}: mend RECOQUEST_OIDC_ISSUER."
            )
        address = found.get("jwks_uri")
        if not isinstance(address, str) or not is_safe_url(address):
            raise ProviderError("The provider names no address of its keys that begins with https.")
        documents = self._fetch(address)
        entries = documents.get("keys") if isinstance(documents, dict) else None
        if not isinstance(entries, list):
            raise ProviderError("The provider's keys are no JSON Web Key Set.")
        keys: dict[str | None, list[SigningKey]] = {}
        for entry in entries[:_MAX_KEYS]:
            key = _signing_key(entry)
            if key is not None:
                keys.setdefault(entry.get("kid"), []).append(key)
        return _endpoints_of(found), keys


def _endpoints_of(discovery: dict[str, Any]) -> Endpoints:
    return Endpoints(
        _address(discovery, "authorization_endpoint"),
        _address(discovery, "token_endpoint"),
        _address(discovery, "end_session_endpoint"),
        _texts(discovery, "scopes_supported"),
        # The default of OpenID Connect Discovery.
        _texts(discovery, "token_endpoint_auth_methods_supported") or frozenset({"client_secret_basic"}),
    )


def _address(discovery: dict[str, Any], name: str) -> str | None:
    """A safe address, which may have a query of its own."""
    found = discovery.get(name)
    return (
        found
        if isinstance(found, str) and "#" not in found and is_safe_url(found.partition("?")[0])
        else None
    )


def _texts(discovery: dict[str, Any], name: str) -> frozenset[str]:
    found = discovery.get(name)
    return frozenset(one for one in found if isinstance(one, str)) if isinstance(found, list) else frozenset()


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


# Certificates beside a key, which nothing here checks.
_UNUSED: Final = frozenset({"x5c", "x5t", "x5t#S256", "x5u"})


class _NoRedirects(HTTPRedirectHandler):
    """Follows no redirection: it could lead to an address that is not safe."""

    def redirect_request(self, *_: Any) -> None:
        """Refuse; the answer becomes an error."""


def fetch_json(url: str) -> Any:
    """Read a JSON document of limited size within a limited time.

    Raises:
        ProviderError: There is none.
    """
    request = Request(url, headers={"Accept": "application/json", "User-Agent": "recoquest"})
    try:
        return open_json(request)
    except HTTPError as error:
        error.close()
        raise ProviderError(f"{url} answers with status {error.code}.") from error
    except (OSError, HTTPException) as error:
        raise ProviderError(f"{url} cannot be reached: {getattr(error, 'reason', error)}.") from error
    except ValueError as error:
        raise ProviderError(f"{url} has no JSON document.") from error


def open_json(request: Request) -> Any:
    """Send a request; read a JSON document of limited size within a limited time.

    Raises:
        HTTPError: The answer has another status, which may be one of a redirection.
        OSError: Nobody answers.
        HTTPException: The answer is no HTTP.
        ValueError: The document is none, too long, or comes too slowly.
    """
    with build_opener(_NoRedirects).open(request, timeout=_TIMEOUT_S) as answer:
        return json.loads(read_limited(answer))


def read_limited(answer: HTTPResponse) -> bytes:
    """Read an answer whole; the limit of the connection holds for each part of it only.

    Raises:
        ValueError: It is too long, or takes too long.
    """
    until, content = time.monotonic() + _TIMEOUT_S, b""
    while part := answer.read1(1 << 16):
        content += part
        if len(content) > _MAX_BYTES or time.monotonic() > until:
            raise ValueError("The answer is too long, or takes too long.")
    return content
