"""The key that tests give to services, requests that bring it, and the routes that need one."""

from typing import Any, Final

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import SecretStr

ADMIN_KEY: Final = "a key of the tests, with every right"
AS_ADMIN: Final = {"Authorization": f"Bearer {ADMIN_KEY}"}

# Settings of a service that anybody may search, and that takes changes with the key.
OPEN: Final[dict[str, Any]] = {"open_reading": True, "admin_key": SecretStr(ADMIN_KEY)}
# The same for a process of its own.
OPEN_ENVIRONMENT: Final = {"RECOQUEST_OPEN_READING": "true", "RECOQUEST_ADMIN_KEY": ADMIN_KEY}


def bearer(credential: str) -> dict[str, str]:
    """The header of a request that brings a key or a token."""
    return {"Authorization": f"Bearer {credential}"}


def routes_of(application: FastAPI) -> list[APIRoute]:
    """All routes of an application."""
    return [route for route in application.routes if isinstance(route, APIRoute)]
