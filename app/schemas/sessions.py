"""Schemas of sessions."""

from datetime import UTC, datetime
from typing import Self

from pydantic import Field

from app.schemas.search.page import Answer
from index.keys.grants import Grants, Role, written_grants


class SessionState(Answer):
    """The caller of a request, and its roles."""

    kind: str = Field(description="How the caller is known: anonymous, key, token or session.")
    name: str | None = Field(description="Name of the caller; null for nobody.")
    roles: dict[str, list[Role]] = Field(
        description="Roles by collection, those that everybody has among them; `*`: in all of them."
    )
    open_reading: bool = Field(description="Whether everybody who reaches the service may read.")
    expires: datetime | None = Field(description="End of the session; null without one.")
    csrf_token: str | None = Field(
        description="With the cookie of the session, requests that are not GET send it as `X-CSRF-Token`; "
        "null without a session."
    )
    provider_sign_in: bool = Field(
        description="Whether GET /v1/session/begin leads to the sign-in of an identity provider."
    )
    provider_sign_out: str | None = Field(
        description="Page of the identity provider that ends its own session, for whoever signed in there; "
        "null without one."
    )

    @classmethod
    def of(
        cls,
        kind: str,
        name: str,
        grants: Grants,
        *,
        open_reading: bool,
        ends: int | None,
        csrf: str | None,
        provider_sign_in: bool,
        provider_sign_out: str | None,
    ) -> Self:
        """Describe a caller, with the end of its session in seconds since 1970."""
        return cls.model_validate(
            {
                "kind": kind,
                "name": None if kind == "anonymous" else name,
                "roles": written_grants(grants),
                "open_reading": open_reading,
                "expires": None if ends is None else datetime.fromtimestamp(ends, UTC),
                "csrf_token": csrf,
                "provider_sign_in": provider_sign_in,
                "provider_sign_out": provider_sign_out,
            }
        )
