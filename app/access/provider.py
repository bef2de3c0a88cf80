"""The signing keys of an OpenID Connect provider, fetched over HTTPS and kept."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from typing import Any, Final
from urllib.parse import urlencode
from urllib.request import HTTPErrorProcessor, Request, build_opener

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
class Discovery:
    """What a provider tells of itself (OpenID Connect Discovery 1.0)."""

    document: Mapping[str, Any]

    def address(self, name: str) -> str | None:
        """A safe address, which may have a query of its own; None where it tells of none."""
        found = self.document.get(name)
        fits = isinstance(found, str) and "#" not in found and is_safe_url(found.partition("?")[0])
        return found if fits else None

    def texts(self, name: str) -> frozenset[str]:
        """A list of texts; empty where it tells of none."""
        found = self.document.get(name)
        return frozenset(one for one in (found if isinstance(found, list) else ()) if isinstance(one, str))


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
        self._keys: list[SigningKey] = []
        self._discovery: Discovery | None = None
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

    async def discovery(self) -> Discovery:
        """Return what the provider tells of itself.

        Raises:
            ProviderError: It cannot be asked now, and this is not known from before.
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
        wanted = _KEY_TYPES[algorithm]
        fitting = [key for key in named if key.key_type == wanted and key.get("alg", algorithm) == algorithm]
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
                self._discovery, self._keys = await asyncio.to_thread(self._read_documents)
            except ProviderError as error:
                _log.warning("the identity provider cannot be used", reason=str(error))
            else:
                self._fetched_at = now

    def _read_documents(self) -> tuple[Discovery, list[SigningKey]]:
        found = self._fetch(self.issuer.rstrip("/") + _DISCOVERY)
        if not isinstance(found, dict) or found.get("issuer") != self.issuer:
            raise ProviderError(
                f"The provider's own name is not {self.issuer!r}: mend RECOQUEST_OIDC_ISSUER."
            )
        discovery = Discovery(found)
        address = discovery.address("jwks_uri")
        if address is None:
            raise ProviderError("The provider names no address of its keys that begins with https.")
        documents = self._fetch(address)
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


# Certificates beside a key, which nothing here checks.
_UNUSED: Final = frozenset({"x5c", "x5t", "x5t#S256", "x5u"})


class _AnyStatus(HTTPErrorProcessor):
    """Passes every answer on; a redirection is not followed: it may lead to an address that is not safe."""

    def http_response(self, request: Request, response: HTTPResponse) -> HTTPResponse:  # noqa: ARG002
        """Return the answer as it is."""
        return response

    https_response = http_response


def fetch_json(url: str) -> Any:
    """Read a JSON document.

    Raises:
        ProviderError: There is none; see `ask`.
    """
    status, document = ask(url)
    if status >= HTTPStatus.MULTIPLE_CHOICES:
        raise ProviderError(f"{url} answers with status {status}.")
    return document


def ask(url: str, form: Mapping[str, str] | None = None, **headers: str) -> tuple[int, Any]:
    """Send a request; return the status and the JSON document of its answer.

    The document is of limited size and read within a limited time. It is None where an answer that tells of
    no success has none.

    Args:
        url: Address.
        form: Fields of a form to send; None: the document is only read.
        headers: Further headers.

    Raises:
        ProviderError: Nobody answers, or a success without such a document.
    """
    sent = {"Accept": "application/json", "User-Agent": "recoquest", **headers}
    request = Request(url, None if form is None else urlencode(form).encode("ascii"), sent)
    status = 0
    try:
        with build_opener(_AnyStatus).open(request, timeout=_TIMEOUT_S) as answer:
            status = answer.status
            return status, json.loads(_read_limited(answer))
    except (OSError, HTTPException) as error:
        raise ProviderError(f"{url} cannot be reached: {getattr(error, 'reason', error)}.") from error
    except (ValueError, RecursionError) as error:
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            return status, None
        raise ProviderError(f"{url} has no JSON document.") from error


def _read_limited(answer: HTTPResponse) -> bytes:
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
