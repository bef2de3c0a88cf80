"""Tokens of an OpenID Connect provider: signature, issuer, audience and times checked; groups give roles."""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from joserfc import jws, jwt
from joserfc.errors import ExpiredTokenError, JoseError
from joserfc.jws import JWSRegistry

from app.access.provider import ALGORITHMS, Provider, ProviderError, UnknownSigningKeyError
from app.edge.http.problem_kinds import Kind
from app.edge.http.problems import RequestError
from app.edge.principal import Grants, Principal, Role
from app.settings import Settings
from index.errors import shortened

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


class TokenVerifier:
    """Turns tokens into principals.

    Args:
        settings: Tell the claim with the groups, where dots lead into objects, and grants by group.
        provider: Source of the signing keys.
        audience: Value that the claim `aud` must have or hold.
    """

    def __init__(self, settings: Settings, provider: Provider, audience: str) -> None:
        self._provider = provider
        self._groups_claim = settings.oidc_groups_claim
        self._roles = settings.oidc_roles
        self._registry = JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
        self._registry.max_header_length = _MAX_HEADER_LENGTH
        self._audience = audience

    async def verify(self, token: str, nonce: str | None = None) -> Principal:
        """Return the caller that a token names.

        Args:
            token: The token.
            nonce: Value that a sign-in was begun with, for the ID token that the token endpoint has given for
                it (OpenID Connect Core 1.0, section 3.1.3.7); None: it is an access token.

        Raises:
            RequestError: The token is not valid or has expired (401), or the provider's keys are not known
                and it does not answer (503).
        """
        try:
            claims = await self._claims_of(token, nonce)
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
        subject, issuer = str(claims["sub"]), self._provider.issuer
        name, grants = _name_of(claims), self._grants_of(claims)
        return Principal("token", f"{issuer}#{subject}", name, grants, float(claims["exp"]))

    async def _claims_of(self, token: str, nonce: str | None) -> Mapping[str, Any]:
        """Check everything of a token; return its claims."""
        if len(token) > _MAX_LENGTH:
            raise ValueError("The token is too long.")
        header = jws.extract_compact(token.encode("ascii"), registry=self._registry).headers()
        algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ", "JWT")
        types: Sequence[str] = _TYPES
        further: dict[str, Any] = {}
        if nonce is not None:
            types = _ID_TYPES
            further = {"nonce": {"essential": True, "value": nonce}, "azp": {"value": self._audience}}
        if algorithm not in ALGORITHMS or str(kind).lower() not in types:
            raise ValueError("The token has another type or algorithm.")
        key = await self._provider.signing_key(algorithm, kid if isinstance(kid, str) else None)
        claims = jwt.decode(token, key, algorithms=[algorithm], registry=self._registry).claims
        wanted = jwt.JWTClaimsRegistry(
            leeway=_LEEWAY_S,
            iss={"essential": True, "value": self._provider.issuer},
            aud={"essential": True, "value": self._audience},
            sub={"essential": True},
            exp={"essential": True},
            **further,
        )
        wanted.validate(claims)
        if not isinstance(claims["sub"], str) or not claims["sub"]:
            raise ValueError("The token has no subject.")
        return claims

    def _grants_of(self, claims: Mapping[str, Any]) -> Grants:
        grants: dict[str, frozenset[Role]] = {}
        for group in _groups_of(claims, self._groups_claim):
            for collection, roles in self._roles.get(group, {}).items():
                grants[collection] = grants.get(collection, frozenset()) | roles
        return grants


def _groups_of(claims: Mapping[str, Any], name: str) -> list[str]:
    """The groups of a claim, which is a text or a list of texts; others are none."""
    found: Any = claims.get(name)
    if found is None:
        found = claims
        for part in name.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    if isinstance(found, str):
        return [found]
    return [group for group in found if isinstance(group, str)] if isinstance(found, list) else []


def _name_of(claims: Mapping[str, Any]) -> str:
    names = (claims.get(name) for name in _NAMES)
    name = next(name for name in names if isinstance(name, str) and name)
    return shortened("".join(char for char in name if char.isprintable()), _MAX_NAME_LENGTH)
